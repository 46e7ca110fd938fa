"""Histories that model calls repeat, put together: each call's history is an earlier one and what came since.

A call continues a chain when the chain is the beginning of its history; of several chains, the longest. The system
prompt at the head is left out of the comparison, because many agents write the time into it: a changed one becomes a
step of its own where it changed (`system_changed`). A history that holds nothing but results for the calls that a
chain ended on continues it too (`partial_history`). Anything else begins a new chain: a sub-agent, a context that was
compacted, a retry, a call beside the conversation. What a chain's history holds before its first own answer was
copied from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.jsontext import decode_sound
from ratchet.intake.spans.model import Span

Key = tuple[str, str, tuple[tuple[str, str], ...]]
_HEADS = ("system", "developer")


@dataclass
class Turn:
    """One message of a chain."""

    message: dict[str, Any]
    key: Key
    span: Span | None = None
    """The model call that said it, for an answer."""
    compared: bool = True
    """Whether it is part of what later histories repeat; system prompts at the head are not."""
    copied: bool = False
    without_model: bool = False
    """Whether no model call said it: a tool that the agent ran by itself."""
    others: list[list[dict[str, Any]]] = field(default_factory=list)
    """The other answers of the same call."""
    refers_to: list[str] = field(default_factory=list)
    """Embedded trajectories that a result stands for."""


@dataclass
class Chain:
    """One conversation with a model, over all its calls."""

    turns: list[Turn] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)
    head: list[Key] = field(default_factory=list)
    ends: list[list[Turn]] = field(default_factory=list)
    """The answers of the last call, one for each alternative; the first one is at the end of `turns`."""

    @property
    def body(self) -> list[Key]:
        """What the history of the next call must begin with."""
        return [turn.key for turn in self.turns if turn.compared]


def chains_of(spans: Sequence[Span]) -> list[Chain]:
    """Put the model calls of a trace together, in the order in which they were made."""
    chains: list[Chain] = []
    keys_of: dict[int, Key] = {}
    for span in sorted(spans, key=lambda span: span.start):
        head, body = split(span.inputs)
        # A message that is repeated is the same object.
        keys = [keys_of.get(id(one)) or keys_of.setdefault(id(one), key_of(one)) for one in body]
        chain = max((one for one in chains if _continues(one, keys)), key=lambda one: len(one.body), default=None)
        rest = body[len(chain.body) :] if chain else body
        if chain:
            for turn, message in zip([turn for turn in chain.turns if turn.compared], body, strict=False):
                _complete(turn.message, message)
        elif (chain := _waiting(chains, body)) is not None:
            chain.anomalies.append("partial_history")
        if chain is None:
            chain = Chain()
            chains.append(chain)
        _extend(chain, span, head, rest)
    for chain in chains:
        _mark_copied(chain)
    return chains


def continues(chain: Chain, span: Span) -> bool:
    """Whether the history of a model call begins with a chain."""
    return _continues(chain, [key_of(message) for message in split(span.inputs)[1]])


def split(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the system prompts at the head of a history, and the rest."""
    end = next((place for place, one in enumerate(messages) if one["role"] not in _HEADS), len(messages))
    return messages[:end], messages[end:]


def key_of(message: dict[str, Any]) -> Key:
    """Return what makes two messages the same: role, text and calls; not ids, nor the spacing of arguments."""
    calls = message.get("tool_calls")
    made = [_call(one) for one in calls] if isinstance(calls, list) else []
    content = message.get("content")
    if isinstance(content, list):
        texts = [one.get("text") if isinstance(one, dict) else one for one in content]
        parts = [
            text if isinstance(text, str) else canonical_json(one) for text, one in zip(texts, content, strict=True)
        ]
        content = "\n".join(parts)
    text = content if isinstance(content, str) else "" if content is None else canonical_json(content)
    role = message["role"]
    return ("system" if role in _HEADS else role, text.strip(), tuple(made))


def _call(call: Any) -> tuple[str, str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return "", canonical_json(call)
    arguments = function.get("arguments")
    inner = decode_sound(arguments) if isinstance(arguments, str) else arguments
    return str(function.get("name")), str(arguments).strip() if inner is None else canonical_json(inner)


def _continues(chain: Chain, keys: list[Key]) -> bool:
    """Whether a history begins with the chain, or with it as it would be with another of the last answers."""
    body = chain.body
    if not body:
        return False
    if len(body) <= len(keys) and body == keys[: len(body)]:
        return True
    shown = len(chain.ends[0]) if chain.ends else 0
    before = body[: len(body) - shown]
    for place, end in enumerate(chain.ends[1:], 1):
        whole = before + [turn.key for turn in end]
        if len(whole) <= len(keys) and whole == keys[: len(whole)]:
            first = chain.ends.pop(place)
            chain.ends.insert(0, first)
            chain.turns[len(chain.turns) - shown :] = first
            return True
    return False


def _waiting(chains: list[Chain], body: list[dict[str, Any]]) -> Chain | None:
    """Return the chain that ended on calls to which a history of results alone gives the answers."""
    results = list(takewhile(lambda message: message["role"] == "tool", body))
    named = [message.get("tool_call_id") for message in results]
    if not named or None in named:
        return None
    for chain in reversed(chains):
        calls = chain.turns[-1].message.get("tool_calls") if chain.turns else None
        if isinstance(calls, list) and any(call.get("id") in named for call in calls if isinstance(call, dict)):
            return chain
    return None


def _extend(chain: Chain, span: Span, head: list[dict[str, Any]], rest: list[dict[str, Any]]) -> None:
    keys = [key_of(message) for message in head]
    if head and keys != chain.head:
        if chain.spans:
            chain.anomalies.append("system_changed")
        chain.turns += [Turn(deepcopy(message), key, compared=False) for message, key in zip(head, keys, strict=True)]
        chain.head = keys
    new = [Turn(deepcopy(message), key_of(message)) for message in rest]
    if new and chain.spans and not chain.ends and new[0].message["role"] == "assistant":
        # The call before logged no answer, and here it is in the history.
        new[0].span = chain.spans[-1]
    chain.turns += new
    chain.ends = [[Turn(deepcopy(message), key_of(message), span) for message in said] for said in span.choices]
    for place, end in enumerate(chain.ends):
        end[0].others = span.choices[:place] + span.choices[place + 1 :]
    if chain.ends:
        chain.turns += chain.ends[0]
    chain.spans.append(span)


def _complete(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    """Take over the ids of calls that the history has and the answer itself had not."""
    made, told = earlier.get("tool_calls"), later.get("tool_calls")
    if not (isinstance(made, list) and isinstance(told, list) and len(made) == len(told)):
        return
    for call, other in zip(made, told, strict=True):
        if isinstance(call, dict) and isinstance(other, dict) and not call.get("id") and other.get("id"):
            call["id"] = other["id"]


def _mark_copied(chain: Chain) -> None:
    """Mark what an agent said before the first call of the chain, and all that led to it, as copied."""
    own = next((place for place, turn in enumerate(chain.turns) if turn.span is not None), len(chain.turns))
    told = [place for place, turn in enumerate(chain.turns[:own]) if turn.message["role"] in ("assistant", "tool")]
    if told:
        chain.anomalies.append("copied_context")
        for turn in chain.turns[: told[-1] + 1]:
            turn.copied = turn.compared
    later = [turn for turn in chain.turns[own:] if turn.span is None and turn.message["role"] == "assistant"]
    chain.anomalies += ["answer_without_span"] * len(later)
