"""Broken logs by chance: the small samples of every format, damaged as disks, editors and exporters damage them."""

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parent / "samples"
SPLICES = [
    b"null", b"{}", b"[]", b'""', b"NaN", b"1e999", b"-1", b"\\ud800", b"\xff", b"\n", b"\r\n", b"\xe2\x80\xa8", b"\0",
    b'"a":1,', b"}" * 3, b"[" * 200, b"\\", b'"', b"9" * 400, b"\xef\xbb\xbf", b"PAR1", b"PK\x03\x04",
]  # fmt: skip
ODD = [
    None, True, False, 0, -1, 1, 2**63, 2**64 + 1, -(2**70), 1.5, 1e308, "", " ", "0", "null", "{}", "[", "\ud800",
    "a\nb", "\u2028", "x" * 3000, [], {}, [None], [[]], [{}], {"": None}, {"role": "tool"}, {"type": "text"}, ["text"],
    "2030-01-01",
]  # fmt: skip


@cache
def samples() -> tuple[tuple[str, bytes], ...]:
    """(name, content) of every sample file, sorted."""
    files = sorted(path for path in SAMPLES.rglob("*") if path.is_file() and path.suffix != ".py")
    return tuple((f"{path.parent.name}-{path.name}", path.read_bytes()) for path in files)


def mutated(chance: random.Random) -> tuple[str, bytes]:
    """Return the name of a sample and what became of it."""
    name, content = chance.choice(samples())
    damages = [_bytes, _bytes, _cut, _lines, _spliced]
    if name.rsplit(".", 1)[-1] in ("json", "jsonl", "traj"):
        damages += [_values] * 6
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        content = chance.choice(damages)(content, chance)
    return name, content


def _bytes(content: bytes, chance: random.Random) -> bytes:
    """Flip bits, drop a stretch, or put something in."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 4, 16])):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = chance.randrange(256)
        elif kind == 2:
            del data[at : at + chance.randint(1, 40)]
        else:
            data[at : at + chance.choice([0, 0, 1, 4])] = chance.choice(SPLICES)
    return bytes(data)


def _cut(content: bytes, chance: random.Random) -> bytes:
    """End too early, or begin too late."""
    at = chance.randrange(len(content) + 1)
    return content[:at] if chance.random() < 0.8 else content[at:]


def _lines(content: bytes, chance: random.Random) -> bytes:
    """Repeat, drop or move whole lines."""
    lines = content.split(b"\n")
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.randrange(3)
    if kind == 0:
        lines.insert(to, lines[at])
    elif kind == 1:
        del lines[at]
    else:
        lines[at], lines[to] = lines[to], lines[at]
    return b"\n".join(lines)


def _spliced(content: bytes, chance: random.Random) -> bytes:
    """Go on as another file, or hold a stretch of one."""
    _, other = chance.choice(samples())
    at, start = chance.randrange(len(content) + 1), chance.randrange(len(other) + 1)
    if chance.random() < 0.3:
        return content + (b"\n" if chance.random() < 0.5 else b"") + other
    return (
        content[:at]
        + other[start : start + chance.randint(1, 400)]
        + content[at if chance.random() < 0.5 else len(content) :]
    )


def _values(content: bytes, chance: random.Random) -> bytes:
    """Change values inside JSON that stays JSON: other types, missing and unknown keys, repeated and nested parts."""
    try:
        texts = [content] if chance.random() < 0.1 else content.split(b"\n")
        at = chance.randrange(len(texts))
        value = json.loads(texts[at])
    except (ValueError, RecursionError):
        try:
            texts, at, value = [content], 0, json.loads(content)
        except (ValueError, RecursionError):
            return _bytes(content, chance)
    for _ in range(chance.choice([1, 1, 2, 5])):
        value = _changed(value, chance)
    texts[at] = json.dumps(value, ensure_ascii=chance.random() < 0.9).encode("utf-8", "surrogatepass")
    return b"\n".join(texts)


def _changed(root: Any, chance: random.Random) -> Any:
    places = [
        (holder, key)
        for holder in _holders(root)
        for key in (holder if isinstance(holder, dict) else range(len(holder)))
    ]
    if not places:
        return copy.deepcopy(chance.choice(ODD))
    holder, key = chance.choice(places)
    kind = chance.randrange(8)
    if kind <= 2:
        holder[key] = copy.deepcopy(chance.choice(ODD))
    elif kind == 3:
        del holder[key]
    elif kind == 4:
        other, its = chance.choice(places)
        holder[key] = copy.deepcopy(other[its]) if its in other or isinstance(other, list) else None
    elif kind == 5:
        holder[key] = json.dumps(holder[key])
    elif kind == 6:
        holder[key] = [copy.deepcopy(holder[key])] * chance.choice([1, 2, 20])
    elif isinstance(holder, dict):
        holder[chance.choice(["extra", "", "id", "type", "metadata", "unknown"])] = copy.deepcopy(holder[key])
    else:
        holder.insert(chance.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    return root


def _holders(value: Any) -> list[Any]:
    found, pending = [], [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict | list):
            found.append(item)
            pending.extend(item.values() if isinstance(item, dict) else item)
    return found
