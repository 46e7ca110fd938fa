"""Personal data: what a fixed shape and, where there is one, a check digit give away in a text.

Kinds: `email`, `phone`, `card` (issuer ranges and Luhn), `iban` (length and ISO 7064 mod 97-10), `ip` (public IPv4 and
IPv6), and national ids that can be checked: `us_ssn` (areas that exist), `br_cpf`, `es_dni`, `fr_nir`, `it_codice`.
Names and addresses have no fixed shape: `personal_presidio` looks for them where it is installed. Found by kind and
counted, never printed.

Many texts are searched together, for all shapes at once; only what has a shape is looked at more closely.
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from ratchet.intake.shapes import places

_RESERVED = (
    b"example.com",
    b"example.org",
    b"example.net",
    b".example",
    b".test",
    b".invalid",
    b".localhost",
    b".local",
)
"""Domains that belong to nobody (RFC 2606, RFC 6762)."""
_ISSUERS = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[689]\d)\d{11}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14,17}"
)
_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AT": 20, "BE": 16, "BG": 22, "BR": 29, "CH": 21, "CY": 28, "CZ": 24, "DE": 22, "DK": 18,
    "EE": 20, "ES": 24, "FI": 18, "FR": 27, "GB": 22, "GR": 27, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IS": 26,
    "IT": 27, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "MC": 27, "MT": 31, "NL": 18, "NO": 15, "PL": 28, "PT": 25,
    "RO": 24, "SA": 24, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "TR": 26, "UA": 29,
}  # fmt: skip
"""Lengths of the registered countries (ISO 13616 registry)."""


def luhn(digits: str) -> bool:
    """Whether a number's last digit is its Luhn check digit (ISO/IEC 7812-1, annex B)."""
    doubled = [int(digit) * (2 if at % 2 else 1) for at, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def iban(text: str) -> bool:
    """Whether a text without spaces is an IBAN: its country's length, and remainder 1 by 97 (ISO 13616)."""
    if _IBAN_LENGTHS.get(text[:2]) != len(text):
        return False
    return int("".join(str(int(sign, 36)) for sign in text[4:] + text[:4])) % 97 == 1


def among(texts: Sequence[bytes], together: bytes | None = None) -> dict[int, Counter[str]]:
    """Count the distinct values of each kind in opened texts.

    Args:
        texts: the texts.
        together: the same on lines of their own, where they were put together before.

    Returns:
        The counts by the position of the text; a text without personal data has none.
    """
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    found: dict[int, set[tuple[str, bytes]]] = {}
    done = [0] * len(_SHAPES)
    """How far each shape was looked for."""
    whole = b"\n".join(texts) if together is None else together
    for rough in (_ROUGH, _APART):
        for number, start, end in places(tuple(rough), whole):
            at = bisect_right(starts, start) - 1
            text, low, high = texts[at], start - starts[at], end - starts[at]
            for place, shape in list(rough.values())[number]:
                if start < done[place]:
                    continue  # the same once more, a little longer
                for match in shape.pattern.finditer(text, max(low - _BEFORE, 0), high + _AFTER):
                    if match.start() >= high:
                        break
                    done[place] = starts[at] + match.end()
                    if match.end() > low and shape.holds(match.group()):
                        found.setdefault(at, set()).add((shape.kind, _same(shape.kind, match.group())))
    return {at: Counter(kind for kind, _ in values) for at, values in found.items()}


def _same(kind: str, value: bytes) -> bytes:
    """Return what all spellings of a value have in common."""
    if kind == "email":
        return value.lower()
    bare = bytes(code for code in value.upper() if 48 <= code <= 58 or 65 <= code <= 90)
    return bare[-10:] if kind == "phone" else bare


def _email(value: bytes) -> bool:
    local, domain = value.lower().split(b"@")
    return not domain.endswith(_RESERVED) and local not in (b"git", b"noreply", b"no-reply")


def _digits(value: bytes) -> str:
    return "".join(chr(code) for code in value if 48 <= code <= 57)


def _phone(value: bytes) -> bool:
    return 9 <= len(_digits(value)) <= 15


def _card(value: bytes) -> bool:
    digits = _digits(value)
    return bool(_ISSUERS.fullmatch(digits)) and len(set(digits)) > 1 and luhn(digits)


def _is_iban(value: bytes) -> bool:
    return iban(value.decode().replace(" ", ""))


def _ip(value: bytes) -> bool:
    try:
        return ipaddress.ip_address(value.decode()).is_global
    except ValueError:
        return False


def _ssn(value: bytes) -> bool:
    area, group, serial = value.decode().split("-")
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def _cpf(value: bytes) -> bool:
    digits = [int(digit) for digit in _digits(value)]
    for count in (9, 10):
        rest = sum(digit * (count + 1 - at) for at, digit in enumerate(digits[:count])) * 10 % 11 % 10
        if digits[count] != rest:
            return False
    return len(set(digits)) > 1


def _dni(value: bytes) -> bool:
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(value[:8]) % 23] == chr(value[-1])


def _nir(value: bytes) -> bool:
    digits = _digits(value)
    return digits[0] in "1278" and 97 - int(digits[:13]) % 97 == int(digits[13:])


_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
"""What a letter of an odd place counts, from A on; the digit n counts as the n-th letter does."""


def _codice(value: bytes) -> bool:
    """The check letter of an Italian tax code (decree of 23 December 1976, article 12)."""
    places = [code - 48 if code < 58 else code - 65 for code in value]
    return (sum(_ODD[place] for place in places[0:15:2]) + sum(places[1:15:2])) % 26 == places[15]


class _Shape(NamedTuple):
    kind: str
    rough: str
    """What the matcher looks for: no more of the shape than makes it rare, since repetition costs it dearly."""
    pattern: re.Pattern[bytes]
    holds: Callable[[bytes], bool]


def _shape(
    kind: str,
    body: str,
    holds: Callable[[bytes], bool],
    *,
    before: str = r"[\w-]",
    after: str = r"[\w-]",
    rough: str | None = None,
) -> _Shape:
    return _Shape(kind, rough or body, re.compile(f"(?<!{before})(?:{body})(?!{after})".encode()), holds)


_RUN = r"\d{8}(?:\d{5}|-?[A-HJ-NP-TV-Z])"
_COLONS = r"[0-9A-Fa-f]:[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]"
_SHAPES = (
    _shape(
        "email",
        r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}",
        _email,
        before=r"[\\A-Za-z0-9._%+-]",  # after a backslash stands the rest of an escape
        rough=r"[A-Za-z0-9._%+-]@[A-Za-z0-9-]+\.[A-Za-z0-9]",
    ),
    _shape(
        "phone",
        r"\+[1-9]\d{0,2}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]?\d{2,4}){1,4}",
        _phone,
        before=r"[\w+]",
        after=r"\d",
        rough=r"\+[1-9]\d{0,2}[ .-]?\(?\d",
    ),
    _shape(
        "phone",
        r"(?:\([2-9]\d\d\) ?|[2-9]\d\d[-.])[2-9]\d\d[-.]\d{4}",
        _phone,
        before=r"[\w.+-]",
        after=r"[\w-]|\.\d",
        rough=r"\d\d\d[-.]\d{4}",
    ),
    _shape("card", r"[2-6]\d{12,18}", _card, before=r"[\w.+-]", rough=_RUN),
    _shape(
        "card",
        r"[2-6]\d{3}(?:[ -]\d{4}){2}[ -]\d{1,7}",
        _card,
        before=r"[\w.+-]",
        rough=r"\d{4}[ -]\d{4}[ -]\d{4}",
    ),
    _shape("card", r"3\d{3}[ -]\d{6}[ -]\d{4,5}", _card, before=r"[\w.+-]", rough=r"\d{4}[ -]\d{6}[ -]\d{4}"),
    _shape(
        "iban",
        r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?",
        _is_iban,
        rough=r"[A-Z]{2}\d{2} ?[A-Z0-9]{4} ?[A-Z0-9]{4} ?[A-Z0-9]{3}",
    ),
    _shape("ip", r"\d{1,3}(?:\.\d{1,3}){3}", _ip, before=r"[\w.-]", after=r"[\w-]|\.\d"),
    _shape(
        "ip",
        r"[0-9A-Fa-f]{1,4}:[0-9A-Fa-f:]{2,28}:[0-9A-Fa-f]{1,4}",
        _ip,
        before=r"[\w:.]",
        after=r"[\w:.]",
        rough=_COLONS,
    ),
    _shape("us_ssn", r"\d{3}-\d\d-\d{4}", _ssn),
    _shape("br_cpf", r"\d{3}\.\d{3}\.\d{3}-\d\d", _cpf),
    _shape("es_dni", r"\d{8}-?[A-HJ-NP-TV-Z]", _dni, rough=_RUN),
    _shape("fr_nir", r"[1278]\d\d(?:0[1-9]|1[0-2])\d{10}", _nir, before=r"[\w.-]", rough=_RUN),
    _shape(
        "fr_nir",
        r"[1278] \d\d (?:0[1-9]|1[0-2]) \d\d \d{3} \d{3} \d\d",
        _nir,
        before=r"[\w.-]",
        rough=r"\d{2} \d{3} \d{3} \d\d",
    ),
    _shape("it_codice", r"[A-Z]{6}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]", _codice),
)
_ROUGH: dict[str, list[tuple[int, _Shape]]] = {}
"""What the matcher looks for, and the shapes, with their places, that may be there."""
for _place, _known in enumerate(_SHAPES):
    _ROUGH.setdefault(_known.rough, []).append((_place, _known))
_APART = {_COLONS: _ROUGH.pop(_COLONS)}
"""What makes the search for all others dearer than it is alone."""
_BEFORE, _AFTER = 70, 260
"""How far from where the matcher found it a shape may begin and end."""
