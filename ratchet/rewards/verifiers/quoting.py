"""Finding a quote in a document after normalisation, with the places where words and sentences begin and end.

A document is cut into sentences: after `.`, `!` or `?` and white space, at blank lines, and before list items. The
normalised sentences are joined by single spaces, so that line breaks and typesetting leave no trace in the text while
every boundary is still known.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ratchet.rewards.verifiers.comparing import normalised

_HYPHENATED = re.compile(r"(?<=\w)[-\u00ad\u2010]\n\s*(?=[a-z])")
_SENTENCES = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+|\n\s*\n|\n(?=\s*(?:[-*•#]|\d+[.)])\s)")
_ABBREVIATED = re.compile(
    r"\b(?:[A-Z]|[Dd]r|Mrs?|Ms|Prof|St|[Ff]igs?|[Nn]o|[Vv]ol|pp?|vs|al|cf|ca|approx|e\.g|i\.e|resp|incl)\.$"
)
"""Ends of a text after which a full stop does not end the sentence."""
_CLOSING = " .!?;:,\"')]"


class Passage(NamedTuple):
    """Where a quote stands in a normalised document: [start, end) in characters."""

    start: int
    end: int
    whole_words: bool
    whole_sentences: bool


class Document:
    """A document as quotes are looked up in it."""

    def __init__(self, text: str) -> None:
        """Normalise and cut a text."""
        self.raw = text
        sentences = [normalised(part) for part in _split(_joined(text))]
        self.text = " ".join(part for part in sentences if part)
        self._starts, self._ends, at = set(), set(), 0
        for part in filter(None, sentences):
            self._starts.add(at)
            at += len(part)
            self._ends.add(len(self.text[:at].rstrip(_CLOSING)))
            at += 1

    def passages(self, quote: str) -> list[Passage]:
        """Return every place where the normalised quote stands."""
        sought, found = normalised(_joined(quote)), []
        at = self.text.find(sought) if sought else -1
        while at >= 0:
            found.append(self._passage(at, at + len(sought)))
            at = self.text.find(sought, at + 1)
        return found

    def position(self, start: int, end: int) -> str:
        """Return the normalised text of the raw characters [start, end)."""
        return normalised(_joined(self.raw[start:end]))

    def _passage(self, start: int, end: int) -> Passage:
        before = self.text[start - 1 : start] + self.text[start]
        after = self.text[end - 1 : end + 1]
        words = not (_inside(before) or _inside(after))
        # A list mark or an opening quotation mark may be left out, and so may the closing punctuation.
        lead = start
        while lead > 0 and not self.text[lead - 1].isalnum() and lead not in self._starts:
            lead -= 1
        sentences = lead in self._starts and len(self.text[:end].rstrip(_CLOSING)) in self._ends
        return Passage(start, end, words, words and sentences)


def _split(text: str) -> list[str]:
    """Cut at sentence boundaries; what closes a sentence stays with it."""
    parts, at = [], 0
    for match in _SENTENCES.finditer(text):
        if _ABBREVIATED.search(text, at, match.start()) and "\n" not in match.group():
            continue
        parts.append(text[at : match.end()])
        at = match.end()
    return [*parts, text[at:]]


def _inside(pair: str) -> bool:
    """Whether a boundary between two characters lies inside a word or a number."""
    return len(pair) == 2 and pair[0].isalnum() and pair[1].isalnum()


def _joined(text: str) -> str:
    """Join words that were hyphenated at the end of a line."""
    return _HYPHENATED.sub("", text)


@lru_cache(maxsize=1024)
def document(text: str) -> Document:
    """Return a document, remembered: many attempts cite the same ones."""
    return Document(text)
