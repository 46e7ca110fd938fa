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

import numpy as np

from ratchet.intake.shapes import present

LAYERS = 4
"""Escapes are resolved this many times: JSON in a string in JSON in a string takes three."""
_BASE64_LAYERS = 2
_LINE = 60
"""Shortest line of a block that goes on in the next: PEM breaks at 64, MIME at 76."""
_BREAK = re.compile(rb"\r?\n(?=[A-Za-z0-9+/_-])")
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_RUNS = bytes(code in _ALPHABET for code in range(256))
_FOUR = np.uint32(0x01010101)
_RUN = 20
_STANDARD = bytes.maketrans(b"-_", b"+/")
_PRINTED = bytes(range(32, 127)) + b"\t\r\n"
_ESCAPE = re.compile(rb"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_UNICODE = re.compile(rb"(\\u(?:[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[0-9a-fA-F]{4}))")
_SAMPLE = 1 << 14
"""So much of a text says whether it holds many escapes."""
_CODE_POINT = (r"(?:^|[^\\])(?:\\\\)*\\u",)
"""A backslash that is escaped itself begins no escape before the next layer."""
_SLASH = (r"\\/",)
_PAIR = b"\\\0"
"""Stands for two backslashes while the escapes behind others are resolved."""
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
        if present(_CODE_POINT, raw):
            if 128 * raw.count(b"\\u", 0, _SAMPLE) > min(len(raw), _SAMPLE):
                plain = raw if raw.isascii() else raw.decode("utf-8", "replace").encode("ascii", "backslashreplace")
                return _utf8(plain.decode("unicode_escape", "replace")).replace(b"\\/", b"/")
            parts = _UNICODE.split(raw.replace(b"\\\\", _PAIR))
            parts[1::2] = map(_code, parts[1::2])
            raw = b"".join(parts).replace(_PAIR, b"\\\\")
        text: bytes = codecs.escape_decode(raw, "ignore")[0]
    except (ValueError, DeprecationWarning):
        return _ESCAPE.sub(_character, raw)
    return text.replace(b"\\/", b"/") if present(_SLASH, text) else text


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
    done = 0
    for start, end in _long(runs):
        if start < done:
            continue
        block = text[start:end]
        while end - start >= _LINE and (broken := _BREAK.match(text, end)):
            start, end = broken.end(), _end(runs, broken.end())
            block += text[start:end]
        done = end
        if not (block.islower() or block.isupper() or block.isdigit()):
            decoded = _decoded(block)
            if 2 * len(decoded.translate(None, _PRINTED)) <= len(decoded):
                found.append(decoded)
    return b"\n".join(found)


def _long(runs: bytes) -> list[tuple[int, int]]:
    """Return (start, end) of the runs of at least 20: of 15 bytes, the least that is decoded."""
    if len(runs) < _RUN:
        return []
    # Every such run holds four whole words of four bytes, of which few others hold as many.
    words = np.frombuffer(runs, np.uint32, len(runs) // 4) == _FOUR
    pairs = words[:-1] & words[1:]
    found, done = [], 0
    for place in np.flatnonzero(pairs[:-2] & pairs[2:]).tolist():
        at = 4 * place
        if at >= done:
            start, done = runs.rfind(b"\0", 0, at) + 1, _end(runs, at)
            if done - start >= _RUN:
                found.append((start, done))
    return found


def _end(runs: bytes, start: int) -> int:
    end = runs.find(b"\0", start)
    return len(runs) if end < 0 else end


def _decoded(run: bytes) -> bytes:
    run = run.translate(_STANDARD)
    spare = len(run) % 4
    try:
        return binascii.a2b_base64(run[:-1] if spare == 1 else run + b"=" * (-spare % 4))
    except binascii.Error:
        return b""
