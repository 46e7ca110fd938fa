"""The lines of the ledger: how one is written, and how one is held against the line before it.

A line is the canonical JSON of `{digest, event, previous, seq}`, where `digest` is SHA-256 over the canonical JSON of
the other three and `previous` is the digest of the line before (64 zeros for the first). Canonical JSON sorts its keys,
so what the digest covers is the line without its first member: it is verified on the bytes as they are.
"""

from __future__ import annotations

import hashlib
import json

from pydantic import ValidationError

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.rights.events import Event

GENESIS = "0" * 64
_OPENING = b'{"digest":"'
_COVERED = len(_OPENING) + 64 + len('",')


class Broken(Exception):
    """What is wrong with a line; the ledger says which and where."""


def encode(seq: int, previous: str, event: Event) -> bytes:
    """Return the line of an event, with its newline."""
    line = {"seq": seq, "previous": previous, "event": event.model_dump(mode="json")}
    line["digest"] = digest(line)
    return canonical_json(line).encode() + b"\n"


def decode(raw: bytes, seq: int, previous: str | None) -> tuple[str, Event]:
    """Verify one line and return its digest and its event.

    Args:
        raw: the line with its newline.
        seq: its number, from 0.
        previous: digest of the line before, or None where the line was followed from there once already.

    Raises:
        Broken: it is no ledger line, does not follow, or does not match its digest.
    """
    try:
        line = json.loads(raw)
        stated = line["digest"]
        follows = line["seq"] == seq and previous in (None, line["previous"])
        event = Event.model_validate(line["event"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise Broken(f"it is no ledger line ({type(error).__name__})") from None
    if not follows:
        raise Broken("it does not follow the line before it")
    covered = b"{" + raw[_COVERED:-1]
    if not raw.startswith(_OPENING) or hashlib.sha256(covered).hexdigest() != stated:
        raise Broken("its content does not match its digest")
    return stated, event
