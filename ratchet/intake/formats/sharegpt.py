"""ShareGPT and LLaMA-Factory data sets: `conversations` of turns, alpaca rows, and preferences in either spelling.

Turns are `from`/`value` or `role`/`content`. A call turn holds the JSON of one call or of several; it becomes calls
with issued ids, and the observations that follow answer them in order. A `system` column speaks first, unless the first
turn is a system turn: that one counts, as in LLaMA-Factory, and the column is kept beside. Instruction and input of an
alpaca row are joined by a line break, as LLaMA-Factory joins them; the pairs of `history` come before. Rows of
`messages` alone have the shape of OpenAI chat and are read there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.intake.jsontext import Value
from ratchet.intake.messages import Conversation
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import roots
from ratchet.intake.turns import add_turn, pair_of, record_of, rows_of, tools_in

TITLE = "ShareGPT, LLaMA-Factory"
LINES = True
KEPT = (
    "turns of every role, calls and observations, system prompt, tools, alpaca instruction, input, output and history, "
    "both sides of a preference; media paths, feedback tags and every other column under `extra.sharegpt`"
)
DROPPED = "the spacing inside call texts"
FOREIGN = {"schema_version", "steps", "trajectory", "traj", "prompt", "completion", "resourceSpans", "runs"}
"""Top-level fields of other formats that may also have conversations or instructions."""
_TURNS = ("conversations", "conversation")
_SIDES = ("chosen", "rejected")


def sniff(head: bytes, name: str) -> bool:
    """Whether a row has turns under `conversations`, an alpaca instruction with its answer, or two sides as objects."""
    found = roots(head)
    return any(_is_row(keys) for keys in found) and not any(FOREIGN & set(keys) for keys in found)


def _is_row(keys: dict[str, str]) -> bool:
    sided = set(_SIDES) <= set(keys)
    if any(keys.get(field, "").startswith("[") for field in _TURNS):
        return True
    if keys.get("instruction", "").startswith('"'):
        return "output" in keys or sided
    return sided and "messages" in keys and all(keys[side].startswith("{") for side in _SIDES)


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per row, two per preference."""
    return rows_of(data, _records)


def _records(item: Value) -> list[Record]:
    body = item.value
    field = next((name for name in (*_TURNS, "messages") if body.get(name) is not None), None)
    if field is None and "instruction" not in body:
        raise Unreadable("no_messages", "a row must have conversations or an instruction")
    noted: list[str] = []
    tools = tools_in(body, noted)
    used = {field or "instruction", "tools"}
    if field is None:
        used |= {"input", "output", "history", "system"}
    sided = all(body.get(side) is not None for side in _SIDES)
    rest = {key: value for key, value in body.items() if key not in used | (set(_SIDES) if sided else set())}
    if not sided:
        chat = Conversation(lambda: digest(body)[:12], "sharegpt", (*item.anomalies, *noted))
        _prompt(chat, body, field, rest)
        if field is None:
            _answer(chat, body.get("output"))
        return [record_of(item, chat, tools, "sharegpt", rest)]
    sides, whole = {}, rest
    for side in _SIDES:
        chat = Conversation(lambda: digest(body)[:12], "sharegpt", (*item.anomalies, *noted))
        _prompt(chat, body, field, rest := dict(whole))
        shared = len(chat.steps)
        _answer(chat, body[side])
        sides[side] = (chat, shared)
    return pair_of(item, sides, tools, "sharegpt", rest)


def _prompt(chat: Conversation, body: dict[str, Any], field: str | None, rest: dict[str, Any]) -> None:
    """Add the turns of a row up to its answer; takes out of `rest` what became a turn."""
    if field is None:
        _text(chat, "system", body.get("system"))
        _history(chat, body.get("history"))
        _text(chat, "user", _instruction(body), **_joint(body))
        return
    turns = body[field]
    if not isinstance(turns, list):
        raise Unreadable("bad_message", "the turns of a row must be an array")
    first = turns[0] if turns and isinstance(turns[0], dict) else {}
    if "system" not in (first.get("from"), first.get("role")) and isinstance(rest.get("system"), str):
        _text(chat, "system", rest.pop("system"))
    for turn in turns:
        add_turn(chat, turn)


def _history(chat: Conversation, history: Any) -> None:
    if not isinstance(history, list | None):
        raise Unreadable("bad_message", "history must be an array of pairs")
    for pair in history or []:
        if not isinstance(pair, list) or len(pair) != 2:
            raise Unreadable("bad_message", "history must hold pairs of instruction and response")
        add_turn(chat, {"role": "user", "content": pair[0]})
        add_turn(chat, {"role": "assistant", "content": pair[1]})


def _instruction(body: dict[str, Any]) -> str:
    parts = [body[key] for key in ("instruction", "input") if body.get(key)]
    if not all(isinstance(part, str) for part in parts):
        raise Unreadable("bad_content", "instruction and input must be texts")
    return "\n".join(parts)


def _joint(body: dict[str, Any]) -> dict[str, int]:
    """Say where the input begins in the joined text, so that the two can be told apart again."""
    return {"input_at": len(body["instruction"]) + 1} if body.get("instruction") and body.get("input") else {}


def _text(chat: Conversation, role: str, text: Any, **beside: int) -> None:
    if text:
        add_turn(chat, {"role": role, "content": text, **beside})


def _answer(chat: Conversation, answer: Any) -> None:
    """Add the answer: a text, one turn, or a list of turns."""
    for turn in answer if isinstance(answer, list) else [answer]:
        add_turn(chat, {"role": "assistant", "content": turn} if isinstance(turn, str | None) else turn)
