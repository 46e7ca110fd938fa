"""What real JSON files are like, for every reader of rows: one bad row never costs a good one."""

import json
from pathlib import Path

import pytest

from ratchet.intake.containers import container_of, unpack
from ratchet.intake.formats import formats, recognise
from ratchet.intake.jsontext import MAX_DEPTH
from ratchet.intake.records import Record, Rejected
from ratchet.intake.validate import trajectory_of

SAMPLES = Path(__file__).parent / "samples"
ROWS = {
    "openai_chat": b'{"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"ok"}]%s}',
    "openai_responses": b'{"object":"response","input":"%s","output":[{"type":"message","role":"assistant",'
    b'"content":"ok"}]%s}',
    "sharegpt": b'{"conversations":[{"from":"human","value":"%s"},{"from":"gpt","value":"ok"}]%s}',
    "trl": b'{"prompt":"%s","completion":"ok"%s}',
}


def read(name, data):
    return list(formats()[name].read(data, "x.jsonl"))


def said(record):
    trajectory = trajectory_of(record, tenant="acme", grant_id="g")
    return [step.message for step in trajectory.steps]


@pytest.mark.parametrize("name", ROWS)
def test_the_sample_of_quirks_comes_in_row_by_row(name):
    data = (SAMPLES / name / "json_quirks.jsonl").read_bytes()
    assert recognise(data, "x.jsonl") == [name]
    found = read(name, data)
    records = {item.number: said(item)[0] for item in found if isinstance(item, Record)}
    rejected = {item.number: item.code for item in found if isinstance(item, Rejected)}
    assert records == {0: "plain", 1: "line\u2028sep\u0085 and", 2: "big", 8: "last good"}
    assert rejected == {
        3: "not_finite", 4: "duplicate_key", 5: "lone_surrogate", 6: "not_an_object", 7: "not_utf8", 9: "truncated",
    }  # fmt: skip
    for item in found:
        assert data[item.offset : item.offset + len(item.raw)] == item.raw
    assert found[2].anomalies == ("big_integer",)


@pytest.mark.parametrize("name", ROWS)
def test_utf_16_is_read_and_noted(name):
    data = (SAMPLES / name / "utf16.json").read_bytes()
    assert recognise(data, "x.json") == [name]
    found = read(name, data)
    assert [said(item)[0] for item in found] == ["one", "two"]
    assert all(item.anomalies == ("utf16",) for item in found)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    ("more", "code"),
    [
        (b',"n":' + b"7" * 4301, "huge_integer"),
        (b',"n":' + b"[" * 10_000 + b"]" * 10_000, "too_deep"),
        (b',"n":' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "too_deep"),
        (b',"n":1e999', "not_finite"),
        (b',"n":-Infinity', "not_finite"),
    ],
)
def test_a_value_without_one_right_reading_costs_its_row_alone(name, more, code):
    good = ROWS[name] % (b"x", b"")
    found = read(name, b"\n".join([good, ROWS[name] % (b"y", more), good]))
    assert [getattr(item, "code", None) for item in found] == [None, code, None]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_700_kilobytes_comes_in_whole(name):
    text = b"long " * 140_000
    assert said(read(name, ROWS[name] % (text, b""))[0])[0] == text.decode()


@pytest.mark.parametrize("name", ROWS)
def test_the_same_bytes_give_the_same_digests(name):
    for path in sorted((SAMPLES / name).iterdir()):
        data = path.read_bytes()
        data = b"".join(unpack(data)) if container_of(data) else data
        first, second = read(name, data), read(name, data)
        assert len(first) == len(second) > 0
        for one, two in zip(first, second, strict=True):
            assert (one.number, one.offset, one.raw) == (two.number, two.offset, two.raw)
            if isinstance(one, Record):
                assert one.document == two.document


@pytest.mark.parametrize("name", ROWS)
def test_every_record_of_the_samples_is_a_valid_trajectory(name):
    for path in sorted((SAMPLES / name).iterdir()):
        data = path.read_bytes()
        data = b"".join(unpack(data)) if container_of(data) else data
        assert recognise(data, path.name) == [name], path.name
        assert [said(item) for item in read(name, data) if isinstance(item, Record)], path.name


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("body", [{}, {"messages": 7}, {"prompt": None}, {"conversations": {}}, {"output": 7}])
def test_a_row_without_the_fields_of_its_format_is_rejected_by_name(name, body):
    (item,) = read(name, json.dumps(body).encode())
    assert isinstance(item, Rejected)
    assert item.code not in ("reader_failed", "not_json")
