"""Secrets are looked for before anything is stored: in the raw bytes and in the decoded strings of every record.

The rules are those of Kingfisher (in process, offline), patterns of our own for what it leaves out (a lone AWS key
id, passwords in URLs), and the tenant's canaries. Strings that are JSON themselves, such as call arguments, are
decoded first; base64 is decoded by Kingfisher, and here for own patterns and canaries. What is found is reported by
rule name and never by value. Personal data is not looked for here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ratchet.intake.jsontext import decode_sound

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

# Each pattern has a literal that must occur: looking for that first is about 50 times as fast.
_OWN = {
    "own.aws-key-id": (("AKIA", "ASIA"), re.compile(r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b(?<!EXAMPLE)")),
    "own.url-password": (
        ("://",),
        re.compile(
            r"://[^\s:/@\"'<>{}$]{1,64}:(?!(?:pass(?:word)?|secret|pw|x+|\*+)@)[^\s:/@\"'<>{}$]{6,128}@[\w.-]",
            re.IGNORECASE,
        ),
    ),
    "own.private-key": (("PRIVATE KEY-----",), re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")),
}
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,}")
_LAYERS = 3


class SecretScanner:
    """Finds secrets by rule name."""

    def __init__(self, canaries: Sequence[str] = ()) -> None:
        """Take the tenant's canaries: strings that must never come in, of at least 6 characters."""
        self._canaries = tuple(canary for canary in canaries if len(canary) >= 6)
        self._scanner = _kingfisher()

    def raw(self, data: bytes) -> set[str]:
        """Return the names of the rules that find something in bytes as they are."""
        text = data.decode("utf-8", "replace")
        return self._by_kingfisher(data) | self._own(text)

    def record(self, raw: bytes, value: Any) -> set[str]:
        """Return the names of the rules that find something in a record's bytes or in its decoded strings."""
        decoded = "\n".join(_strings(value))
        return self.raw(raw) | self.raw(decoded.encode("utf-8", "replace"))

    def _by_kingfisher(self, data: bytes) -> set[str]:
        return {finding.rule_id for finding in self._scanner.scan(data) if finding.visible}

    def _own(self, text: str, layer: int = 0) -> set[str]:
        found = {
            name
            for name, (literals, pattern) in _OWN.items()
            if any(literal in text for literal in literals) and pattern.search(text)
        }
        if any(canary in text for canary in self._canaries):
            found.add("canary")
        if layer < _LAYERS:
            for match in _BASE64.finditer(text):
                decoded = _from_base64(match.group())
                if decoded is not None:
                    found |= self._own(decoded, layer + 1)
        return found


@cache
def _kingfisher() -> Scanner:
    # Compiling the rules takes about 5 s once; they are then read from the user's cache folder.
    from kingfisher_sdk import DetectionPolicy, Rules, Scanner

    # A comment inside a log must not be able to switch the search off.
    policy = DetectionPolicy(inline_ignores=False, markup_context=False)
    return Scanner(Rules(), redact=True, policy=policy)


def _strings(value: Any) -> Iterator[str]:
    """Yield every string of a JSON value; one that holds JSON is opened too."""
    pending: list[tuple[Any, int]] = [(value, 0)]
    while pending:
        item, layer = pending.pop()
        if isinstance(item, str):
            yield item
            if layer < _LAYERS and item.lstrip().startswith(("{", "[")):
                pending.append((decode_sound(item), layer + 1))
        elif isinstance(item, dict):
            pending.extend((child, layer) for pair in item.items() for child in pair)
        elif isinstance(item, list):
            pending.extend((child, layer) for child in item)


def _from_base64(text: str) -> str | None:
    padded = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    plain = decoded.decode("utf-8", "ignore")
    return plain if 2 * len(plain) >= len(decoded) else None
