"""Samples of the training-set and log formats through the whole intake: what is stored, joined and set aside."""

import gzip
import json
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inspect_world import archive, entries, sample
from intake_world import world

from ratchet.intake import index
from ratchet.intake.containers import unpack
from ratchet.intake.formats import formats
from ratchet.intake.records import Record

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize(
    ("name", "read", "stored", "set_aside"),
    [
        ("trl/preference.jsonl", 9, 8, {"unknown_role": 1}),
        ("trl/preference.parquet", 2, 2, {}),
        ("trl/stepwise.jsonl", 2, 1, {"bad_labels": 1}),
        ("openai_chat/messages.parquet", 1, 1, {}),
        ("openai_chat/stored_completion.json", 1, 1, {}),
        ("openai_responses/chained.jsonl", 3, 3, {}),
        ("openai_responses/items.json", 1, 1, {}),
        ("sharegpt/turns.json", 6, 4, {"unknown_role": 1, "no_messages": 1}),
        ("sharegpt/alpaca.json", 6, 5, {"bad_message": 1}),
        ("inspect_ai/finished.eval", 2, 2, {}),
        ("inspect_ai/zstandard.eval", 1, 1, {}),
        ("inspect_ai/journal_only.eval", 2, 0, {"sample_missing": 2}),
        ("inspect_ai/nan_score_cut_off.json", 3, 1, {"not_finite": 1, "truncated": 1}),
    ],
)
def test_a_sample_comes_in_and_the_same_again_adds_nothing(tmp_path, name, read, stored, set_aside):
    place = world(tmp_path)
    place.land(Path(name).name, (SAMPLES / name).read_bytes())
    first, again = place.ingest(), place.ingest()
    assert (first.read, first.stored, dict(first.reasons)) == (read, stored, set_aside)
    assert dict(first.formats) == {name.split("/")[0]: 1}
    assert (again.stored, again.duplicates) == (0, stored)


def test_a_shared_prompt_is_counted_once(tmp_path):
    place = world(tmp_path)
    place.land("x.jsonl", (SAMPLES / "trl/preference.jsonl").read_bytes())
    place.ingest()
    frame = index(place.store, "acme")
    assert sorted(zip(frame["steps"], frame["copied_steps"], strict=True)) == [(1, 1)] * 4 + [(2, 0)] * 4


def test_compressed_lines_come_in_as_their_text(tmp_path):
    place = world(tmp_path)
    place.land("x.jsonl.gz", gzip.compress((SAMPLES / "sharegpt/preference.jsonl").read_bytes()))
    report = place.ingest()
    assert (report.stored, dict(report.reasons)) == (4, {"unknown_role": 1})


def test_dropped_fields_are_counted_in_the_report(tmp_path):
    place = world(tmp_path)
    place.land("x.eval", (SAMPLES / "inspect_ai/finished.eval").read_bytes())
    assert place.ingest().dropped == {"events.model.call": 4, "events.sample_init": 2, "events.tool": 2}


CANARY = "canary-7f3a91"


def test_a_secret_in_one_side_of_a_pair_sets_both_aside(tmp_path):
    place = world(tmp_path)
    good = {"prompt": "p", "chosen": "a", "rejected": "b"}
    place.land("x.jsonl", [good, {**good, "rejected": f"b {CANARY}"}])
    report = place.ingest(canaries=[CANARY])
    assert (report.read, report.stored, dict(report.reasons)) == (4, 2, {"secret": 2})


def test_a_secret_in_an_earlier_response_sets_the_conversation_aside(tmp_path):
    place = world(tmp_path)
    rows = [json.loads(line) for line in (SAMPLES / "openai_responses/chained.jsonl").read_bytes().splitlines()]
    rows[0]["instructions"] = CANARY
    place.land("x.jsonl", rows)
    report = place.ingest(canaries=[CANARY])
    assert (report.stored, dict(report.reasons)) == (1, {"secret": 2})


def test_a_secret_in_an_attachment_sets_its_sample_aside(tmp_path):
    place = world(tmp_path)
    leaking = sample("a", attachments={"dog": f"key: {CANARY}", "tool": "t"})
    place.land("x.eval", archive(entries(leaking, sample("b"))))
    report = place.ingest(canaries=[CANARY])
    assert (report.stored, dict(report.reasons)) == (1, {"secret": 1})
    kept = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert kept
    assert not any(CANARY.encode() in path.read_bytes() for path in kept)


def said(record):
    """What a record says, without what Arrow cannot tell from a null: a content that is absent."""
    steps = record.document["steps"]
    return [
        (
            step["source"],
            step["message"],
            step.get("reasoning_content"),
            step.get("tool_calls"),
            step.get("observation"),
        )
        for step in steps
    ]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("openai_chat", "instance_rows.jsonl"),
        ("openai_responses", "chained.jsonl"),
        ("openai_responses", "stateless.jsonl"),
        ("sharegpt", "roles.jsonl"),
        ("sharegpt", "preference.jsonl"),
        ("trl", "conversational.jsonl"),
        ("trl", "unpaired.jsonl"),
        ("trl", "stepwise.jsonl"),
    ],
)
def test_rows_in_parquet_say_what_the_lines_say(name, file):
    reader = formats()[name]
    for line in (SAMPLES / name / file).read_bytes().splitlines():
        buffer = BytesIO()
        pq.write_table(pa.Table.from_pylist([json.loads(line)]), buffer)
        text = b"".join(unpack(buffer.getvalue()))
        expected = [item for item in reader.read(line, file) if isinstance(item, Record)]
        found = [item for item in reader.read(text, file) if isinstance(item, Record)]
        assert [without_ids(said(item)) for item in found] == [without_ids(said(item)) for item in expected]


def without_ids(value):
    """Leave out issued call ids: they name the trajectory by the digest of its row."""
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items() if key not in ("tool_call_id", "source_call_id")}
    return [without_ids(item) for item in value] if isinstance(value, list | tuple) else value
