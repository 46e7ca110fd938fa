"""A finished attempt at a task: what was read, what was sampled, what was called and what came back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ratchet.contracts.environment import Deliverable, Task, ToolCall, ToolResult
from ratchet.rollouts.engine import Turn


class Exchange(NamedTuple):
    """One turn as logged: what was read since the turn before, what was sampled, the call and its result."""

    read: list[int]
    turn: Turn
    call: ToolCall
    result: ToolResult


class Rollout(NamedTuple):
    """One finished attempt."""

    task: Task
    seed: int
    opening: list[str]
    prompt_ids: list[int]
    exchanges: list[Exchange]
    deliverable: Deliverable | None
    invalid: str | None
    latency_s: float
    system: str = ""
    """The harness's instruction before the opening; empty for none."""
    taken_back: tuple[Turn, ...] = ()
    """Turns that were no call and were sampled again."""

    @property
    def calls(self) -> int:
        """Tool calls made, malformed and refused ones included."""
        return len(self.exchanges)

    @property
    def ok_calls(self) -> int:
        """Calls that were well-formed, permitted and succeeded."""
        return sum(exchange.result.status == "ok" for exchange in self.exchanges)

    @property
    def malformed(self) -> int:
        """Calls that did not parse or were refused."""
        return sum(exchange.result.status in ("malformed", "refused") for exchange in self.exchanges)

    @property
    def violations(self) -> list[str]:
        """Policy rules that were broken, in order."""
        return [exchange.result.violation for exchange in self.exchanges if exchange.result.violation]

    @property
    def sandbox_s(self) -> float:
        """Sandbox CPU seconds of the episode's own calls."""
        return sum(exchange.result.sandbox_s for exchange in self.exchanges)

    @property
    def tokens_in(self) -> int:
        """Tokens read, each counted once: the cache is kept across turns."""
        return sum(len(exchange.read) for exchange in self.exchanges) or len(self.prompt_ids)

    @property
    def tokens_out(self) -> int:
        """Tokens sampled, those of turns that were taken back included."""
        kept = sum(len(exchange.turn.ids) for exchange in self.exchanges)
        return kept + sum(len(turn.ids) for turn in self.taken_back)

    def prompts(self) -> Iterator[list[int]]:
        """All ids before each turn, the turns before it included."""
        ids: list[int] = []
        for exchange in self.exchanges:
            ids = ids + exchange.read
            yield ids
            ids = ids + exchange.turn.ids
