"""The languages of the release page: a sentence is looked up as it reads in English, figures and all.

Reports and decisions hold English sentences, because evidence is digested and read as it was written. The catalogue of
another language holds templates of those sentences (`"p95 latency is {n} times the incumbent's"`), so that old evidence
can be read in it too. A placeholder that starts with `n` stands for a figure, one that starts with `name` for what
others named and nobody translates, one that starts with `id` for such a name of one word; any other is looked up in
turn. A figure is only written anew, never computed anew,
so that it is the same in every language. What the catalogue lacks stays English and is noted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

FIELD = re.compile(r"\{(\w+)\}")
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
_FIGURE = rf"(?:< )?{_NUMBER}(?:e[-+]?\d+)?(?: ?%)?"
_UNIT = r"(?: (?:points|s|ms|[A-Z]{3}))?"
_KINDS = {"name": ".*?", "id": r"\S+", "n": _FIGURE + _UNIT, "": ".*?"}
"""What a placeholder matches, by how its name starts."""
_WHOLE_FIGURE = re.compile(rf"{_FIGURE}{_UNIT}(?: \[{_NUMBER}, {_NUMBER}\])?{_UNIT}")
_IN_TEXT = re.compile(r"\d[\d,]*(?:\.\d+)?")
_NAME = re.compile(r"[\w./:@-]*[a-z_][\w./:@-]*")
"""What a name looks like that stands alone: one word without spaces."""
_TOGETHER = re.compile(r"\[[^\]\s]+ [^\]\s]+\]|\d [A-Z]{3}\b")
"""An interval, or an amount with its currency: what no line break should part."""
NARROW_SPACE = "\u202f"


class Language:
    """How one language says what the page says; English says it as it stands."""

    def __init__(self, code: str, name: str, catalogue: Mapping[str, str] | None = None) -> None:
        """Prepare the catalogue.

        Args:
            code: BCP 47 code, as `lang` attributes have it.
            name: of the language, in the language itself.
            catalogue: template by English template; None for English.
        """
        self.code, self.name = code, name
        self.missing: set[str] = set()
        self._catalogue = catalogue
        self._exact = {key: value for key, value in (catalogue or {}).items() if not FIELD.search(key)}
        templates = sorted((key for key in catalogue or {} if FIELD.search(key)), key=_literal, reverse=True)
        self._templates = [(_pattern(key), key) for key in templates]
        self._said: dict[str, str] = {}

    def say(self, text: str) -> str:
        """The text in this language; where the catalogue lacks it, as it stands, and noted in `missing`."""
        if self._catalogue is None or not text:
            return text
        if text not in self._said:
            found = self._find(text, self.missing)
            if found is None:
                self.missing.add(text)
            self._said[text] = text if found is None else found
        return self._said[text]

    def html(self, text: str) -> str:
        """The same, escaped; English that has no translation is marked as English for whoever reads it aloud."""
        said = _TOGETHER.sub(lambda found: found[0].replace(" ", "&nbsp;"), escape(self.say(text)))
        return f'<span lang="en">{said}</span>' if text in self.missing else said

    def perhaps(self, text: str) -> str:
        """The same for words that an environment may have chosen: what the catalogue lacks stands as it is, unnoted."""
        if self._catalogue is None:
            return escape(text)
        gaps: set[str] = set()
        found = self._find(text, gaps)
        return escape(text if found is None or gaps else found)

    def knows(self, template: str) -> bool:
        """Whether a template has a translation, whatever its placeholders are called."""
        return _bare(template) in {_bare(key) for key in self._catalogue or {}}

    def _find(self, text: str, gaps: set[str]) -> str | None:
        """The text in this language, or None; what is unknown within it goes to `gaps`."""
        assert self._catalogue is not None
        if text in self._exact:
            return self._exact[text]
        for separator in ("", " / ", ", "):
            figures = text.split(separator) if separator else [text]
            if all(_WHOLE_FIGURE.fullmatch(one) for one in figures):
                # A comma between figures would read as one within a figure.
                return separator.replace(",", ";").join(map(self._figure, figures))
        return self._list(text) or self._by_pattern(text, gaps)

    def _list(self, text: str) -> str | None:
        """A list of sentences each of which is known; None where it is none."""
        for separator in ("; ", ", "):
            within: set[str] = set()
            parts = [self._find(part, within) for part in text.split(separator)] if separator in text else [None]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts) and not within:
                return separator.join(known)
        return None

    def _by_pattern(self, text: str, gaps: set[str]) -> str | None:
        assert self._catalogue is not None
        for pattern, key in self._templates:
            found = pattern.fullmatch(text)
            if found:
                parts = {name: self._part(name, part, gaps) for name, part in found.groupdict().items()}
                return FIELD.sub(lambda field, parts=parts: parts[field[1]], self._catalogue[key])  # type: ignore[misc]
        return None

    def _part(self, name: str, text: str, gaps: set[str]) -> str:
        """What stands in a placeholder."""
        if name.startswith(("name", "id")) or not text:
            return text
        if name.startswith("n"):
            return self._figure(text)
        found = self._find(text, gaps)
        if found is None and not _NAME.fullmatch(text):
            gaps.add(text)
        return text if found is None else found

    def _figure(self, text: str) -> str:
        """A figure with a decimal comma, digits in groups from five on, and `;` between the bounds of an interval.

        So the Real Academia Espanola has it (Ortografia, 2010, chapter VIII): a point between groups would read as a
        decimal point to many.
        """
        text = re.sub(rf"\[({_NUMBER}), ({_NUMBER})\]", r"[\1; \2]", text)
        text = _IN_TEXT.sub(lambda found: _spanish_number(found[0]), text)
        return re.sub(r" points\b", " puntos", text)


def _spanish_number(number: str) -> str:
    whole, _, decimals = number.replace(",", "").partition(".")
    if len(whole) > 4:
        first = len(whole) % 3
        groups = [whole[:first]] if first else []
        whole = NARROW_SPACE.join(groups + [whole[at : at + 3] for at in range(first, len(whole), 3)])
    return f"{whole},{decimals}" if decimals else whole


def _literal(template: str) -> int:
    """How much of a template is fixed: the most specific one is tried first."""
    return len(FIELD.sub("", template))


def _bare(template: str) -> str:
    return FIELD.sub("{}", template)


def _pattern(template: str) -> re.Pattern[str]:
    """A template as a regular expression with a group by the name of every placeholder."""
    parts, end = [], 0
    for field in FIELD.finditer(template):
        quoted = template[: field.start()].endswith("'")
        kind = "[^']*" if quoted else next(kind for start, kind in _KINDS.items() if field[1].startswith(start))
        parts += [re.escape(template[end : field.start()]), f"(?P<{field[1]}>{kind})"]
        end = field.end()
    return re.compile("".join([*parts, re.escape(template[end:])]), re.DOTALL)


ENGLISH = Language("en", "English")
