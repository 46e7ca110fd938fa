"""What both of OpenHands' event streams share: a conversation, and the events that nobody said."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ratchet.intake.messages import Conversation

SPACE = "openhands"


class Telling(ABC):
    """A stream of events on its way to a document."""

    def __init__(self, name: Callable[[], str], anomalies: tuple[str, ...]) -> None:
        """Start empty; see `Conversation` for the arguments."""
        self.chat = Conversation(name, SPACE, anomalies, objects=True)
        self.tools: list[dict[str, Any]] | None = None
        self.model: str | None = None
        self.finished = False
        """Whether the agent said that it was done, rather than running out of turns."""
        self.dropped: list[str] = []
        """Names of fields that repeat what is kept already, one per occurrence."""
        self.events: list[dict[str, Any]] = []
        """Events that no model read or wrote: states, recalls, condensations."""

    @abstractmethod
    def tell(self, events: list[Any]) -> None:
        """Take all events. Raises Unreadable where one has no reading."""

    def quiet(self, event: dict[str, Any], *, condensed: bool = False) -> None:
        """Keep an event that is no part of the conversation; a condensation is noted once."""
        self.events.append(event)
        if condensed and "condensed_context" not in self.chat.noted:
            self.chat.noted.append("condensed_context")

    def offered(self, tools: Any) -> None:
        """Take the tools that the system prompt came with."""
        if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools):
            self.tools = tools


class Messages(Telling):
    """The messages themselves, as the model read and wrote them."""

    def tell(self, events: list[Any]) -> None:
        """Take all messages."""
        for message in events:
            self.chat.add(message)
            made = message.get("tool_calls") if message.get("role") == "assistant" else None
            names = [_deep(call, "function", "name") for call in made or []]
            self.finished = self.finished or "finish" in names


def _deep(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def told(event: dict[str, Any], *known: str) -> dict[str, Any]:
    """Return what an event says beyond the fields that have a place already, as message fields to be kept."""
    rest = {key: value for key, value in event.items() if key not in known and value is not None}
    return {"event": rest} if rest else {}


def metrics_of(usage: Any) -> dict[str, Any]:
    """Return the ATIF metrics of a model's `usage`."""
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    counts = {
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens") if isinstance(details, dict) else usage.get("cache_read_tokens"),
    }
    return {key: value for key, value in counts.items() if type(value) is int}
