"""TRL data sets: prompt-completion, preference, unpaired (KTO) and stepwise rows, conversational or plain text.

Rows of `messages` alone have the shape of OpenAI chat and are read there. Plain text becomes a user's and an agent's
step. A preference row becomes two records that name their pair; where its prompt is implicit, it is what both sides
begin with, as TRL extracts it. Labels and scores are what the set claims, never Ratchet's score.
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

TITLE = "TRL data sets"
LINES = True
KEPT = (
    "prompts, completions and both sides of a preference as messages or plain text, calls, results, thinking, tools; "
    "pair and side of a preference, labels, scores and every other column under `extra.trl`"
)
DROPPED = "the spacing inside argument strings"
FOREIGN = {
    "schema_version", "steps", "trajectory", "history", "traj", "conversations", "conversation", "instruction",
    "question", "query", "input", "output", "resourceSpans", "runs", "observations", "choices",
}  # fmt: skip
"""Top-level fields of other formats that may also have prompts and answers."""
_SIDES = ("chosen", "rejected")


def sniff(head: bytes, name: str) -> bool:
    """Whether a row has the columns of a TRL type: two sides, a prompt with its answer, or a prompt of messages."""
    found = roots(head)
    return any(_is_row(keys) for keys in found) and not any(FOREIGN & set(keys) for keys in found)


def _is_row(keys: dict[str, str]) -> bool:
    if set(_SIDES) <= set(keys):
        return all(keys[side].startswith(("[", '"')) for side in _SIDES)
    prompt = keys.get("prompt", "")
    answered = prompt.startswith(("[", '"')) and ("completion" in keys or {"completions", "labels"} <= set(keys))
    return answered or (prompt.startswith("[") and "messages" not in keys)


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per row, two per preference."""
    return rows_of(data, _records)


def _records(item: Value) -> list[Record]:
    body = item.value
    used = {"prompt", "tools", *_SIDES} if "chosen" in body else {"prompt", "completion", "completions", "tools"}
    rest = {key: value for key, value in body.items() if key not in used}
    noted: list[str] = []
    tools = tools_in(body, noted)
    if set(_SIDES) <= set(body):
        prompt, answers, kept = _sides(body)
        sides = {}
        for side in _SIDES:
            chat = _chat(item, noted)
            shared = _speak(chat, prompt, "user")
            _speak(chat, answers[side], "assistant")
            sides[side] = (chat, shared)
        if answers["chosen"] == answers["rejected"]:
            for chat, _ in sides.values():
                chat.noted.append("equal_sides")
        return pair_of(item, sides, tools, "trl", {**rest, **kept})
    if "prompt" not in body:
        raise Unreadable("no_prompt", "a row must have a prompt, or a chosen and a rejected side")
    chat = _chat(item, noted)
    _speak(chat, body["prompt"], "user")
    if "completions" in body:
        _stepwise(chat, body, rest)
    elif "completion" in body:
        _speak(chat, body["completion"], "assistant")
    else:
        chat.noted.append("prompt_only")
    return [record_of(item, chat, tools, "trl", rest)]


def _chat(item: Value, noted: list[str]) -> Conversation:
    return Conversation(lambda: digest(item.value)[:12], "trl", (*item.anomalies, *noted))


def _speak(chat: Conversation, turns: Any, role: str) -> int:
    """Add plain text as one turn of `role`, or a list of turns; returns how many steps there are now."""
    if isinstance(turns, str):
        if turns or role == "assistant":
            chat.add({"role": role, "content": turns})
    elif isinstance(turns, list):
        for turn in turns:
            add_turn(chat, turn)
    elif isinstance(turns, dict):
        add_turn(chat, turns)
    else:
        raise Unreadable("bad_content", "a prompt or an answer must be a text or an array of messages")
    return len(chat.steps)


def _sides(body: dict[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return (prompt, answers by side, what of the prompt column is kept beside)."""
    chosen, rejected = (body[side] for side in _SIDES)
    prompt = body.get("prompt")
    if type(chosen) is not type(rejected) or not isinstance(chosen, str | list):
        raise Unreadable("bad_content", "chosen and rejected must both be texts or both arrays of messages")
    # A plain prompt beside conversational sides repeats what they begin with.
    if prompt is not None and (isinstance(prompt, list) or isinstance(chosen, str)):
        return prompt, {"chosen": chosen, "rejected": rejected}, {}
    kept = {} if prompt is None else {"prompt": prompt}
    if isinstance(chosen, str):
        differing = (at for at, (one, other) in enumerate(zip(chosen, rejected, strict=False)) if one != other)
        shared = next(differing, min(len(chosen), len(rejected)))
        if shared and chosen[shared - 1] == " ":
            shared -= 1
    else:
        shared = 0
        # Each side keeps an answer, even where one is the beginning of the other.
        while shared < min(len(chosen), len(rejected)) - 1 and chosen[shared] == rejected[shared]:
            shared += 1
    return chosen[:shared], {"chosen": chosen[shared:], "rejected": rejected[shared:]}, kept


def _stepwise(chat: Conversation, body: dict[str, Any], rest: dict[str, Any]) -> None:
    """Add the steps of a stepwise row, each with its label."""
    completions, labels = body["completions"], rest.pop("labels", None)
    if not isinstance(completions, list) or not isinstance(labels, list) or len(labels) != len(completions):
        raise Unreadable("bad_labels", "completions and labels must be arrays of one length")
    for text, label in zip(completions, labels, strict=True):
        if not isinstance(text, str):
            raise Unreadable("bad_content", "a completion of a stepwise row must be a text")
        chat.add({"role": "assistant", "content": text, "label": label})
