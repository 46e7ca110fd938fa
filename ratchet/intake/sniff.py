"""What a JSON source is, from its first bytes: the keys of its records, without decoding them.

A tolerant scan that works on a cut head: it finds the keys of the outermost object, of the first object of a top-level
array, or of each of the first lines of JSON Lines, so that a broken first line does not hide what the rest is.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache

from ratchet.intake.jsontext import json_lines

HEAD_BYTES = 1 << 20
"""How much of a source a sniffer sees."""
_LINES = 50
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]', re.DOTALL)


def roots(head: bytes) -> list[dict[str, str]]:
    """Return, per visible record, its top-level keys with the first 40 characters of each value's text."""
    return list(_roots(bytes(head)))


# Every sniffer asks the same of the same head.
@lru_cache(maxsize=2)
def _roots(head: bytes) -> tuple[dict[str, str], ...]:
    head = _plain(head)
    lines = json_lines(head)
    texts = [head] if lines is None else [line for _, line in lines[:_LINES]]
    found = [_root(text.decode("utf-8", "replace").lstrip(" \t\r\n")) for text in texts]
    return tuple(keys for keys in found if keys)


def inside(head: bytes, key: str) -> dict[str, str]:
    """Return what `roots` says of the object that `key` holds, or of the first one in its array.

    A cut head may show no more of a big document than its first field; what stands in that field still tells formats
    apart. The key is looked for at any depth: call this only where the roots, or the name, already speak for a format.
    """
    head = _plain(head)
    match = re.search(rb'"' + re.escape(key.encode()) + rb'"\s*:\s*(?=[\[{])', head)
    if not match or re.match(rb"\[\s*\]", head[match.end() :]):
        return {}
    return _root(head[match.end() :].decode("utf-8", "replace"))


def _plain(head: bytes) -> bytes:
    """Return a head in UTF-8 without a byte order mark."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        head = head[: len(head) // 2 * 2].decode("utf-16", "replace").encode("utf-8", "replace")
    return head.removeprefix(codecs.BOM_UTF8)


def _root(text: str) -> dict[str, str]:
    if not text.startswith(("{", "[")):
        return {}
    level = 1 if text.startswith("{") else 2
    depth, key_next = 0, False
    keys: dict[str, str] = {}
    key: str | None = None
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "[{":
            depth += 1
            key_next = token == "{" and depth == level
            if depth == level and token == "[":
                return keys
        elif token in "]}":
            depth -= 1
            if depth < level and (keys or token == "}"):
                return keys
        elif depth != level:
            continue
        elif token == ",":
            key_next = True
        elif token == ":":
            if key is not None:
                keys[key] = text[match.end() : match.end() + 40].strip()
            key = None
        elif key_next:
            key, key_next = token[1:-1], False
    return keys
