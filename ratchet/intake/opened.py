"""What a piece of a log says once everything is opened that hides text: escapes, JSON in strings, base64.

The piece is not decoded: it may be no JSON at all. Escapes are resolved in the text as it stands, so that names stay
beside their values (`"api_key": "..."`), and again in the lines that still hold some, for JSON inside JSON strings.
Runs of base64, url-safe and broken over lines too, are appended decoded, and opened in turn.
"""

from __future__ import annotations

import binascii
import codecs
import re
from collections.abc import Iterator
from functools import lru_cache

LAYERS = 4
"""Escapes are resolved this many times: JSON in a string in JSON in a string takes three."""
_BASE64_LAYERS = 2
_LEAST = b"a" * 20
"""The shortest run that is decoded, as it reads in `_RUNS`: 15 bytes."""
_LINE = 60
"""Shortest line of a block that goes on in the next: PEM breaks at 64, MIME at 76."""
_BREAK = re.compile(rb"\r?\n(?=[A-Za-z0-9+/_-])")
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_RUNS = bytes(97 if code in _ALPHABET else 32 for code in range(256))
_STANDARD = bytes.maketrans(b"-_", b"+/")
_PRINTED = bytes(range(32, 127)) + b"\t\r\n"
_ESCAPE = re.compile(rb"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_UNICODE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}")
_SAMPLE = 1 << 14
"""So much of a text says whether it holds many escapes."""
_BACKSLASH = ord("\\")
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b" ", b"f": b" "}


def opened(raw: bytes) -> bytes:
    """Return the text of a piece, layer by layer, each on lines of its own."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raw = raw.decode("utf-16", "replace").encode("utf-8", "replace")
    texts = _layers(raw)
    inner = texts
    for _ in range(_BASE64_LAYERS):
        decoded = b"\n".join(_base64(text) for text in inner)
        if not decoded.strip():
            break
        inner = _layers(decoded)
        texts += inner
    return b"\n".join(texts)


def _layers(raw: bytes) -> list[bytes]:
    text = _unescaped(raw)
    texts = [text]
    for _ in range(LAYERS - 1):
        if b"\\" not in text:
            break
        text = _unescaped(b"\n".join(_escaping(text)))
        texts.append(text)
    return texts


def _escaping(text: bytes) -> Iterator[bytes]:
    """Yield the lines that hold a backslash."""
    at = text.find(b"\\")
    while at >= 0:
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        yield text[text.rfind(b"\n", 0, at) + 1 : end]
        at = text.find(b"\\", end)


def _unescaped(raw: bytes) -> bytes:
    """Resolve the escapes of JSON strings, in whatever text they stand; what is no escape loses its backslash at most.

    `codecs` does it at the speed of a copy. It leaves `\\/` and, in bytes, `\\u` alone, and warns of what Python does
    not know: where warnings are errors, a slower way is taken. Few `\\u` are resolved one by one, many at once.
    """
    if b"\\" not in raw:
        return raw
    try:
        if b"\\u" in raw:
            if 128 * raw.count(b"\\u", 0, _SAMPLE) > min(len(raw), _SAMPLE):
                plain = raw if raw.isascii() else raw.decode("utf-8", "replace").encode("ascii", "backslashreplace")
                return _utf8(plain.decode("unicode_escape", "replace")).replace(b"\\/", b"/")
            raw = _UNICODE.sub(_code_points, raw)
        text: bytes = codecs.escape_decode(raw, "ignore")[0]
    except (ValueError, DeprecationWarning):
        return _ESCAPE.sub(_character, raw)
    return text.replace(b"\\/", b"/") if b"\\/" in text else text


def _code_points(match: re.Match[bytes]) -> bytes:
    raw, start = match.string, match.start()
    before = start
    while before and raw[before - 1] == _BACKSLASH:
        before -= 1
    # A backslash that is escaped itself begins no escape before the next layer.
    return match.group() if (start - before) % 2 else _code(match.group())


@lru_cache(maxsize=1 << 14)
def _code(escapes: bytes) -> bytes:
    text = "".join(chr(int(code, 16)) for code in escapes.split(b"\\u")[1:])
    return b"\\\\" if text == "\\" else _utf8(text)


def _character(match: re.Match[bytes]) -> bytes:
    code = match.group(1)
    return _NAMED.get(code, code) if len(code) == 1 else _utf8(chr(int(code[1:], 16)))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # pairs of surrogates, or half a one
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _base64(text: bytes) -> bytes:
    """Return what the blocks of base64 in a text say, where that is text, a block a line."""
    found = []
    runs = text.translate(_RUNS)
    start = runs.find(_LEAST)
    while start >= 0:
        end = _end(runs, start)
        block = text[start:end]
        while end - start >= _LINE and (broken := _BREAK.match(text, end)):
            start, end = broken.end(), _end(runs, broken.end())
            block += text[start:end]
        if not (block.islower() or block.isupper() or block.isdigit()):
            decoded = _decoded(block)
            if 2 * len(decoded.translate(None, _PRINTED)) <= len(decoded):
                found.append(decoded)
        start = runs.find(_LEAST, end)
    return b"\n".join(found)


def _end(runs: bytes, start: int) -> int:
    end = runs.find(b" ", start)
    return len(runs) if end < 0 else end


def _decoded(run: bytes) -> bytes:
    run = run.translate(_STANDARD)
    spare = len(run) % 4
    try:
        return binascii.a2b_base64(run[:-1] if spare == 1 else run + b"=" * (-spare % 4))
    except binascii.Error:
        return b""
