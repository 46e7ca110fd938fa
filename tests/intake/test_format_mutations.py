"""Samples with values swapped, dropped and moved: a reader yields records and rejections, and never fails."""

import json
import random
from pathlib import Path

import pytest
from inspect_world import archive, entries, sample

from ratchet.intake.formats import formats
from ratchet.intake.jsontext import json_lines
from ratchet.intake.records import Record, Unreadable
from ratchet.intake.validate import trajectory_of

SAMPLES = Path(__file__).parent / "samples"
JUNK = (
    None, True, 0, -1, 7.5, 2**70, "", "x", "attachment://dog", [], {}, [None], [[]], [{}], {"id": 1},
    {"type": "text"}, {"role": "user"}, "tool", "assistant", [1, 2], {"name": "f"}, {"a": {"b": []}}, "resp_1",
)  # fmt: skip
KEYS = ("id", "type", "role", "content", "tool_calls", "output", "input", "call_id", "events", "messages", "chosen")
ROUNDS = 60


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def mutated(value, rng):
    """Return a copy with up to three of its values replaced, dropped or copied to another place."""
    value = json.loads(json.dumps([value]))
    for _ in range(rng.randint(1, 3)):
        path = rng.choice([path for path in places(value) if len(path) > 1] or [(0,)])
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        act = rng.random()
        if act < 0.6:
            holder[path[-1]] = json.loads(json.dumps(rng.choice(JUNK)))
        elif act < 0.8 and len(path) > 1:
            del holder[path[-1]]
        elif isinstance(holder, dict):
            holder[rng.choice(KEYS)] = holder[path[-1]]
        else:
            holder.append(holder[path[-1]])
    return value[0]


def bodies():
    for name in ("openai_chat", "openai_responses", "sharegpt", "trl"):
        for path in sorted((SAMPLES / name).glob("*.json*")):
            if path.stem not in ("json_quirks", "utf16"):
                data = path.read_bytes()
                lines = json_lines(data)
                yield name, path.name, json.loads(data) if lines is None else [json.loads(line) for _, line in lines]


@pytest.mark.parametrize(
    ("name", "file", "body"), [pytest.param(*item, id=f"{item[0]}-{item[1]}") for item in bodies()]
)
def test_rows_with_mutated_values_never_fail_a_reader_nor_split_a_pair(name, file, body):
    rng = random.Random(f"{name}/{file}")
    for _ in range(ROUNDS):
        changed = mutated(body, rng)
        rows = changed if isinstance(changed, list) else [changed]
        data = json.dumps(changed, indent=1) if rng.random() < 0.5 else "\n".join(map(json.dumps, rows))
        sides: dict[int, list[str]] = {}
        for item in formats()[name].read(data.encode(), file):
            if isinstance(item, Record):
                trajectory_of(item, tenant="acme", grant_id="g")
                told = ((item.document["extra"] or {}).get(name) or {}).get("preference")
                if isinstance(told, dict) and set(told) == {"pair", "side"}:
                    sides.setdefault(item.number, []).append(told["side"])
        assert all(found == ["chosen", "rejected"] for found in sides.values())


def test_mutated_samples_of_inspect_never_fail_its_reader():
    rng = random.Random(3)
    valid = 0
    for _ in range(4 * ROUNDS):
        files = entries(sample("a"))
        name = rng.choice(sorted(files))
        files[name] = mutated(files[name], rng)
        for item in formats()["inspect_ai"].read(archive(files), "x.eval"):
            if isinstance(item, Record):
                try:
                    trajectory_of(item, tenant="acme", grant_id="g")
                    valid += 1
                except Unreadable as error:
                    assert error.code in ("not_atif", "bad_metadata")  # noqa: PT017
    assert valid > ROUNDS
