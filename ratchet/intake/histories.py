"""Requests and responses of the Responses API, and which of them go on from which.

A response names the one before by `previous_response_id`, or its input repeats what that one had in and out. Then what
is repeated is cut from it, and the earlier record speaks for it: that one has the reasoning, usage and times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.intake.items import is_reference, plain_content
from ratchet.intake.jsontext import Value
from ratchet.intake.messages import text_or_none
from ratchet.intake.records import Unreadable


@dataclass(eq=False)
class Entry:
    """One request with its response."""

    item: Value
    body: dict[str, Any]
    """Fields of the request, overlaid by those of the response."""
    asked: list[Any]
    answered: list[Any]
    wrapper: dict[str, Any] = field(default_factory=dict)
    parent: Entry | None = None
    end: str = ""
    """Digest of all items up to its end."""
    length: int = 0
    """How many items (reasoning aside) it has up to its end."""
    emitted: bool = False

    @property
    def previous(self) -> str | None:
        """Id of the response that it says it goes on from."""
        return text_or_none(self.body.get("previous_response_id"))

    def chain(self) -> list[Entry]:
        """The entries of the conversation up to this one, first one first; a circle ends where it would repeat."""
        found, entry = [self], self.parent
        while entry is not None and entry not in found:
            found.append(entry)
            entry = entry.parent
        return found[::-1]


def entry_of(item: Value) -> Entry:
    """Return the request and response of a record. Raises Unreadable where it has neither input nor output."""
    body = item.value
    request, response = _inner(body.get("request")), _inner(body.get("response"))
    wrapper: dict[str, Any] = {}
    if request is None and response is None and isinstance(body.get("body"), dict):
        request = body["body"]
    if request is None and response is None:
        request = body
    else:
        wrapper = {key: value for key, value in body.items() if key not in ("request", "response", "body")}
        wrapper |= {key: beside for key in ("request", "response") if (beside := _beside(body.get(key)))}
    merged = {**(request or {}), **(response or {})}
    if "input" not in merged and "output" not in merged:
        raise Unreadable("no_items", "a record must have an input or an output")
    asked, answered = merged.get("input"), merged.get("output")
    if isinstance(asked, str):
        asked = [{"role": "user", "content": asked}]
    told = merged.get("instructions")
    for items in (asked, answered, None if isinstance(told, str) else told):
        if items is not None and not isinstance(items, list):
            raise Unreadable("bad_item", "input and instructions must be texts or arrays of items, output an array")
    return Entry(item, merged, asked or [], answered or [], wrapper)


def _inner(holder: Any) -> dict[str, Any] | None:
    """Return a request or response, out of the wrapper that batches put around it."""
    if not isinstance(holder, dict):
        return None
    return holder["body"] if isinstance(holder.get("body"), dict) else holder


def _beside(holder: Any) -> dict[str, Any]:
    """Return what a batch keeps beside the body of a request or response."""
    wraps = isinstance(holder, dict) and isinstance(holder.get("body"), dict)
    return {key: value for key, value in holder.items() if key != "body"} if wraps else {}


def resolve(entries: list[Entry]) -> None:
    """Put the items that references name in their place, where the source has them."""
    known = {
        item["id"]: item
        for entry in entries
        for item in (*entry.asked, *entry.answered)
        if isinstance(item.get("id"), str) and not is_reference(item)
    }
    for entry in entries:
        entry.asked = [known.get(str(item.get("id")), item) if is_reference(item) else item for item in entry.asked]


def join(entries: list[Entry]) -> None:
    """Find for each entry the one that it goes on from, and cut from its input what that one had."""
    named = {entry.body["id"]: entry for entry in entries if isinstance(entry.body.get("id"), str)}
    for entry in entries:
        entry.parent = named.get(entry.previous) if entry.previous else None
        if entry.chain()[0].parent is not None:
            entry.parent = None
    done: set[int] = set()
    for entry in entries:
        for link in entry.chain():
            if id(link) not in done:
                done.add(id(link))
                link.end, link.length = _digests(link)[-1]
    ends = {entry.end: entry for entry in reversed(entries) if entry.answered}
    for entry in entries:
        if entry.previous:
            continue
        reached = _digests(entry)[: len(entry.asked) + 1]
        for position, (end, length) in reversed(list(enumerate(reached))):
            found = ends.get(end)
            if found is not None and 0 < length < entry.length:
                entry.parent, entry.asked = found, entry.asked[position:]
                break


def _digests(entry: Entry) -> list[tuple[str, int]]:
    """Return (digest, length) before the first item of an entry and after each.

    Reasoning does not count: clients may leave it out when they repeat a history.
    """
    end, length = (entry.parent.end, entry.parent.length) if entry.parent else ("", 0)
    found = [(end, length)]
    for item in (*entry.asked, *entry.answered):
        if item.get("type") != "reasoning":
            end, length = digest([end, _essence(item)]), length + 1
        found.append((end, length))
    return found


def _essence(item: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in item.items() if key not in ("id", "status") and value not in (None, [])}
    if "role" in kept:
        kept["type"], kept["content"] = "message", plain_content(kept.get("content"))[0]
    return kept
