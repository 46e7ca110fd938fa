"""Secrets, found before anything is stored: in the text of a record with everything opened that may hide one.

The rules are those of Kingfisher (in process, offline), patterns of our own for what it leaves out (a lone AWS key
id, passwords in URLs), and the tenant's canaries. `opened` resolves escapes, JSON in strings and base64 first. What is
found is reported by rule name and never by value.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Sequence
from functools import cache, lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

from ratchet.contracts.canonical import digest_bytes
from ratchet.errors import IntakeError
from ratchet.intake.opened import opened
from ratchet.intake.shapes import places

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

MIN_CANARY = 6
"""Fewest characters of a canary: a shorter one would be found everywhere."""
MAX_UNPACKED_BYTES = 1 << 30
"""Stated size of an archive's members up to which they are searched."""
_OWN = (
    ("own.aws-key-id", r"A[KS]IA[A-Z2-7]{16}", re.compile(rb"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b(?<!EXAMPLE)")),
    (
        "own.url-password",
        r"://[^\s:/@\"'<>{}$]+:[^\s:/@\"'<>{}$]+@",
        re.compile(
            rb"://[^\s:/@\"'<>{}$]{1,64}:(?!(?:pass(?:word)?|secret|pw|x+|\*+)@)[^\s:/@\"'<>{}$]{6,128}@[\w.-]",
            re.IGNORECASE,
        ),
    ),
    ("own.private-key", "PRIVATE KEY-----", re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")),
)
"""Name, what makes a text worth a look, and the pattern."""
_ROUGH = tuple(rough for _, rough, _ in _OWN)


def check_canaries(canaries: Sequence[str]) -> None:
    """Raise IntakeError for a canary that is too short."""
    for number, canary in enumerate(canaries, 1):
        if len(canary) < MIN_CANARY:
            raise IntakeError(
                f"canary {number}",
                seen=f"{len(canary)} characters",
                rule=f"a canary has at least {MIN_CANARY}",
                remedy="take a longer one, which no honest log holds by chance",
            )


class SecretScanner:
    """Finds secrets by rule name."""

    def __init__(self, canaries: Sequence[str] = ()) -> None:
        """Take the tenant's canaries: strings that must never come in.

        Raises:
            IntakeError: one is too short.
        """
        check_canaries(canaries)
        self._canaries = tuple(canary.encode() for canary in canaries)
        self._scanner = _kingfisher()
        self.text = lru_cache(maxsize=1024)(self._text)
        """Like `found`, for a short text such as a file name or a reason, remembered."""

    def found(self, piece: bytes) -> set[str]:
        """Return the names of the rules that find something in a piece as it is or opened."""
        return self._found(opened(piece))

    def packed(self, data: bytes) -> set[str]:
        """Like `found`, for every member of a ZIP archive; `unread` stands for one that could not be searched."""
        if not data.startswith(b"PK"):
            return set()
        found: set[str] = set()
        try:
            with zipfile.ZipFile(BytesIO(data)) as archive:
                if sum(member.file_size for member in archive.infolist()) > MAX_UNPACKED_BYTES:
                    return {"unread"}
                for member in archive.infolist():
                    found |= self.text(member.filename) | self.found(archive.read(member))
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError):
            return {"unread"}
        return found

    def among(self, texts: Sequence[bytes], together: bytes | None = None) -> dict[int, set[str]]:
        """Search opened texts together, and one by one only where something is found in all of them.

        Args:
            texts: the texts.
            together: the same on lines of their own, where they were put together before.

        Returns:
            The names of the rules that find something, by the position of the text.
        """
        if not self._found(b"\n".join(texts) if together is None else together):
            return {}
        each = ((at, self._found(text)) for at, text in enumerate(texts))
        return {at: rules for at, rules in each if rules}

    def named(self, name: str) -> str:
        """Return a name of a file, or what stands for it where a secret is in it."""
        # A suffix right behind a key can hide where it ends.
        text = "\n".join([name, *re.split(r"[/.]", name)])
        return f"withheld-{digest_bytes(name.encode('utf-8', 'surrogateescape'))[:16]}" if self.text(text) else name

    def _text(self, text: str) -> frozenset[str]:
        return frozenset(self.found(text.encode("utf-8", "surrogateescape")))

    def _found(self, text: bytes) -> set[str]:
        found = {finding.rule_id for finding in self._scanner.scan(text) if finding.visible}
        for number in {number for number, _, _ in places(_ROUGH, text)}:
            name, _, pattern = _OWN[number]
            if pattern.search(text):
                found.add(name)
        if any(canary in text for canary in self._canaries):
            found.add("canary")
        return found


@cache
def _kingfisher() -> Scanner:
    # Compiling the rules takes about 5 s once; they are then read from the user's cache folder.
    from kingfisher_sdk import DetectionPolicy, Rules, Scanner

    # A comment inside a log must not be able to switch the search off. Base64 is opened before, url-safe too.
    policy = DetectionPolicy(inline_ignores=False, markup_context=False, base64_max_depth=0)
    return Scanner(Rules(), base64=False, redact=True, policy=policy)
