"""What a source of spans says is in the trajectory, or is counted as dropped; odd values never make a reader fail."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from span_files import SAMPLES

from ratchet.intake.formats import named
from ratchet.intake.jsontext import decode_sound
from ratchet.intake.records import Rejected, Unreadable
from ratchet.intake.validate import trajectory_of

FORMATS = ("langfuse", "langsmith", "openinference", "otel_genai")
FILES = [path for format in FORMATS for path in sorted((SAMPLES / format).iterdir()) if "broken" not in path.name]
STRUCTURE = (
    "key", "type", "role", "traceId", "spanId", "parentSpanId", "name", "eventName", "dotted_order", "run_type",
    "span_kind", "task_id", "id", "level", "unit", "projectId", "code",
)  # fmt: skip
"""Fields that give a trajectory its shape, or are documented as dropped."""
WORDS = ("assistant", "user", "system", "function", "AGENT", "TOOL", "CHAIN", "STATUS_CODE_OK")
"""Roles and kinds, which became the sources of steps and the kinds of spans."""
ODD = (None, True, 0, -3, 1.5, "", "x", "{}", '{"a": 1', '[{"role": 1}]', [], [1], ["x"], [[]], {}, {"a": 1}, [{}])
TRIES = 8


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def values_of(path: Path) -> list[Any]:
    data = path.read_bytes()
    text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8")
    return (
        [json.loads(line) for line in text.split("\n") if line.strip()]
        if path.suffix == ".jsonl"
        else [json.loads(text)]
    )


def leaves(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a value with the fields they stand in, those inside JSON texts too."""
    if isinstance(value, str):
        inner = decode_sound(value) if value[:1] in ("{", "[") else None
        if isinstance(inner, dict | list):
            yield from leaves(inner, field)
        else:
            yield field, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one, field)


@pytest.mark.parametrize("path", FILES, ids=label)
def test_no_text_of_a_source_is_lost_silently(path: Path) -> None:
    items = list(named(path.parent.name).read(path.read_bytes(), path.name))
    if any(isinstance(item, Rejected) for item in items):
        pytest.skip("some of it is set aside")
    kept = json.dumps([item.document for item in items], ensure_ascii=False)
    dropped = [name for item in items for name in item.dropped]
    lost = [
        (field, text)
        for field, text in leaves(values_of(path))
        if len(text) > 3
        and field not in STRUCTURE
        and text not in WORDS
        and json.dumps(text, ensure_ascii=False)[1:-1] not in kept
    ]
    assert [one for one in lost if not one[1].isdecimal() and "gen_ai." not in one[1] and not dropped] == []


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def mutated(value: Any, rng: random.Random) -> Any:
    """A copy with one value replaced, taken out, or changed inside the JSON that it is a text of."""
    copied = copy.deepcopy(value)
    *path, last = rng.choice(list(places(copied)))
    holder = copied
    for key in path:
        holder = holder[key]
    inner = decode_sound(holder[last]) if isinstance(holder[last], str) else None
    if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
        holder[last] = json.dumps(mutated(inner, rng))
    elif rng.random() < 0.2:
        del holder[last]
    else:
        holder[last] = rng.choice(ODD)
    return copied


@pytest.mark.parametrize("path", FILES, ids=label)
def test_a_mutated_source_is_read_or_set_aside(path: Path) -> None:
    rng, body = random.Random(label(path)), values_of(path)
    refused: list[str] = []
    for _ in range(TRIES):
        data = b"\n".join(json.dumps(value).encode() for value in mutated(body, rng))
        for item in named(path.parent.name).read(data, path.name):
            if isinstance(item, Rejected):
                assert item.code.isidentifier()
                continue
            try:
                trajectory_of(item, tenant="acme", grant_id="g")
            except Unreadable as error:
                refused.append(f"{error.code}: {error.reason}")
    # What becomes a record is sound, but for Ratchet's own metadata, which is the source's.
    assert [reason for reason in refused if not reason.startswith("bad_metadata")] == []
