"""Inspect AI logs: `.eval` archives, finished or not, of whole or chunked samples, and the `.json` form.

Each sample is one record. In an archive its offset is that of its entry, and its bytes are the unpacked ones. A sample
that the journal lists and the archive does not hold is set aside by name. See `archive.py` for the bounds of unpacking
and `inspect_sample.py` for what becomes of a sample.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from ratchet.contracts.canonical import canonical_json
from ratchet.intake.archive import LOCAL, MAX_ENTRY_BYTES, Archive
from ratchet.intake.inspect_sample import record_of
from ratchet.intake.jsontext import REASONS, decode_sound
from ratchet.intake.nested import one, parts
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import roots

TITLE = "Inspect AI logs"
LINES = False
KEPT = (
    "messages, parts, reasoning, calls and results with attachments put in place, tools, usage, times, approvals; "
    "sample id as the task; scores, target, metadata, store, error, limit and the log's head under `extra.inspect`, "
    "scores never as a score"
)
DROPPED = "events other than model calls and approvals, raw API calls, log-probabilities of the output (all counted)"
_SAMPLE = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?P<chunked>/sample)?\.json", re.DOTALL)
_NAMES = re.compile(rb"PK\x03\x04.{26}(?:_journal/|header\.json|start\.json|samples/.{1,512}?_epoch_\d+)", re.DOTALL)
_HEADS = ("_journal/start.json", "start.json", "header.json", "results.json")
_ABOUT = ("version", "status", "eval", "plan", "error")


def sniff(head: bytes, name: str) -> bool:
    """Whether an archive has entries of an Inspect log, or a document its head."""
    if head.startswith(LOCAL):
        return _NAMES.search(head) is not None
    return any(
        keys.get("eval", "").startswith("{") and {"status", "plan", "samples"} & set(keys) for keys in roots(head)
    )


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per sample."""
    if not data.startswith(LOCAL):
        yield from _document(data)
        return
    try:
        archive = Archive(data)
    except Unreadable as error:
        yield Rejected(0, 0, data, error.code, error.reason)
        return
    about, noted = _about(archive)
    seen: set[tuple[str, str]] = set()
    number = 0
    for name, entry in archive.entries.items():
        match = _SAMPLE.fullmatch(name)
        if match is None:
            continue
        seen.add((match["id"], match["epoch"]))
        try:
            raw = _chunked(archive, name.removesuffix("/sample.json")) if match["chunked"] else archive.read(name)
        except Unreadable as error:
            yield Rejected(number, entry.at, archive.packed(name), error.code, error.reason)
        else:
            yield _sample(raw, number, entry.at, about, noted)
        number += 1
    yield from _missing(archive, seen, number, data)


def _sample(raw: bytes, number: int, offset: int, about: dict[str, Any], noted: tuple[str, ...]) -> Record | Rejected:
    item = one(raw, number, offset)
    if isinstance(item, Rejected):
        return item
    try:
        return record_of(item, about, noted)
    except Unreadable as error:
        return Rejected(number, offset, raw, error.code, error.reason)


def _about(archive: Archive) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the head of the log, and what is odd about the archive."""
    about: dict[str, Any] = {}
    noted = list(archive.anomalies)
    for name in (name for name in _HEADS if name in archive.entries):
        try:
            about |= _head(archive.read(name))
        except Unreadable:
            noted.append("head_unreadable")
    if not {"header.json", "results.json"} & set(archive.entries):
        noted.append("unfinished_log")
    return about, tuple(noted)


def _head(text: bytes) -> dict[str, Any]:
    """Return what a document says of the log; its results, where NaN is common, are not looked at."""
    found = {
        part.key: decode_sound(text[part.start : part.end].decode("utf-8", "replace"))
        for part in parts(text)
        if part.key in _ABOUT
    }
    return {key: value for key, value in found.items() if key and value is not None}


def _chunked(archive: Archive, prefix: str) -> bytes:
    """Return a sample that is spread over entries as the one document that it would else be.

    Messages are ranges of a sequence, attachments are named by their position in another. Raises Unreadable.
    """

    def items(sequence: str) -> list[Any]:
        place = re.compile(re.escape(f"{prefix}/{sequence}/") + r"(\d+)\.json")
        starts = sorted((int(match[1]), name) for name in archive.entries if (match := place.fullmatch(name)))
        return [item for _, name in starts for item in _value(archive, name, list)]

    wanted = [
        entry for name, entry in archive.entries.items() if name.startswith(f"{prefix}/") and "/calls/" not in name
    ]
    if sum(entry.size for entry in wanted) > MAX_ENTRY_BYTES:
        raise Unreadable("entry_too_big", f"the parts of the sample state more than {MAX_ENTRY_BYTES} bytes")
    sample = _value(archive, f"{prefix}/sample.json", dict)
    refs = sample.pop("message_refs", [])
    pool, events = items("messages"), items("events")
    if not isinstance(refs, list) or not all(isinstance(ref, list) and len(ref) == 2 for ref in refs):
        raise Unreadable("bad_message", "message_refs must be an array of ranges")
    if not all(type(at) is int and 0 <= at <= len(pool) for ref in refs for at in ref):
        raise Unreadable("bad_message", "message_refs must lie inside the messages of the sample")
    sample["messages"] = [message for start, end in refs for message in pool[start:end]]
    sample["events"], sample["events_data"] = events, {"messages": pool}
    sample["attachments"] = {str(at): text for at, text in enumerate(items("attachments"))}
    if f"{prefix}/metadata.json" in archive.entries:
        sample["metadata"] = _value(archive, f"{prefix}/metadata.json", dict)
    return canonical_json(sample).encode()


def _value(archive: Archive, name: str, kind: type) -> Any:
    value = decode_sound(archive.read(name).decode("utf-8", "surrogateescape"))
    if not isinstance(value, kind):
        raise Unreadable("bad_chunk", "a part of the sample is no sound JSON of its kind")
    return value


def _missing(archive: Archive, seen: set[tuple[str, str]], number: int, data: bytes) -> Iterator[Rejected]:
    """Yield the samples that the log lists and does not hold; and the log itself where it has nothing at all."""
    before = number
    for name, entry in archive.entries.items():
        if not re.fullmatch(r"(?:_journal/)?(?:summaries/\d+|summaries|summary)\.json", name):
            continue
        try:
            listed = json.loads(archive.read(name))
        except (Unreadable, ValueError, RecursionError):
            yield Rejected(number, entry.at, archive.packed(name), "bad_entry", "a list of samples cannot be read")
            number += 1
            continue
        for summary in listed if isinstance(listed, list) else []:
            key = (str(summary.get("id")), str(summary.get("epoch"))) if isinstance(summary, dict) else ("", "")
            if key in seen or not isinstance(summary, dict):
                continue
            seen.add(key)
            raw = json.dumps(summary).encode()
            yield Rejected(number, entry.at, raw, "sample_missing", "the log lists this sample and does not hold it")
            number += 1
    if not seen and number == before:
        yield Rejected(0, 0, data, "no_samples", "the log holds no sample")


def _document(data: bytes) -> Iterator[Record | Rejected]:
    """Read the `.json` form, sample by sample."""
    noted: tuple[str, ...] = ()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            data, noted = data.decode("utf-16").encode(), ("utf16",)
        except UnicodeError:
            yield Rejected(0, 0, data, "not_utf16", REASONS["not_utf16"])
            return
    elif data.startswith(codecs.BOM_UTF8):
        data, noted = data[3:], ("byte_order_mark",)
    top = list(parts(data))
    held = {part.key: part for part in top}
    if "samples" not in held:
        yield Rejected(0, 0, data, "no_samples", "the log holds no sample")
        return
    about = _head(data)
    samples = list(parts(data[: held["samples"].end], held["samples"].start))
    for number, part in enumerate(samples):
        yield _sample(data[part.start : part.end], number, part.start, about, noted)
    if not top[-1].whole and (not samples or samples[-1].whole):
        yield Rejected(len(samples), len(data), b"", "truncated", REASONS["truncated"])
