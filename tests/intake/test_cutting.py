"""Cutting: pieces of a long source say together what the whole says, each at its place, and memory stays bounded."""

import gzip
import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from intake_world import chat, world

from ratchet.intake import cutting, index
from ratchet.intake.cutting import Cutter
from ratchet.intake.jsontext import Lines, values
from ratchet.intake.published import chain
from ratchet.intake.read import quarantined


@pytest.fixture
def small(monkeypatch):
    """Pieces of 200 bytes, lines of at most 2,000, wholes of at most 5,000."""
    for name, size in (("PIECE_BYTES", 200), ("LINE_BYTES", 2000), ("WHOLE_BYTES", 5000), ("_BLOCK", 64)):
        monkeypatch.setattr(cutting, name, size)


line = st.sampled_from(
    [
        "",
        " ",
        "\r",
        '{"messages": [{"role": "user", "content": "é\u2028x"}]}',
        '{"messages": [',
        "rubbish",
        '{"a": "\u0085"}',
        "[1]",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(line, max_size=60), st.booleans(), st.sampled_from(["", "\ufeff"]))
def test_the_pieces_of_lines_say_what_the_whole_says(tmp_path_factory, lines, ended, mark):
    head = '{"messages": [{"role": "user", "content": "hello"}]}'
    data = (mark + "\n".join([*[head] * 20, *lines]) + "\n" * ended).encode()
    path = tmp_path_factory.mktemp("x") / "x.jsonl"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "PIECE_BYTES", 200)
        patch.setattr(cutting, "_BLOCK", 64)
        cutter = Cutter(path, "x.jsonl", "openai_chat")
        pieces = list(cutter.pieces())
    assert len(pieces) > 4
    assert (cutter.whole.digest, cutter.whole.size) == (hashlib.sha256(data).hexdigest(), len(data))
    found = [
        (
            item.number + piece.number,
            item.offset + piece.offset,
            item.raw,
            getattr(item, "code", None),
            getattr(item, "anomalies", None),
        )
        for piece in pieces
        for item in values(piece.data())
    ]
    whole = Lines(data[3:] if mark else data)
    whole.anomalies = ("byte_order_mark",) if mark else ()
    expected = [
        (
            item.number,
            item.offset + 3 * bool(mark),
            item.raw,
            getattr(item, "code", None),
            getattr(item, "anomalies", None),
        )
        for item in values(whole)
    ]
    assert found == expected
    assert all(data[offset : offset + len(raw)] == raw for _, offset, raw, _, _ in found)


def test_numbers_and_offsets_of_a_long_file_are_those_of_the_whole(tmp_path, small):
    home = world(tmp_path)
    records = [json.dumps(chat({"role": "user", "content": f"number {at} é"})).encode() for at in range(100)]
    records[57] = b'{"messages": NaN}'
    path = home.land("x.jsonl", b"\n".join(records))
    assert home.ingest().stored == 99
    data = path.read_bytes()
    frame = index(home.store, "acme")
    assert list(frame["source"]) == [f"x.jsonl#{at}" for at in range(100) if at != 57]
    for at, offset in zip([at for at in range(100) if at != 57], frame["offset"], strict=True):
        assert data[offset:].startswith(records[at])
    (entry,) = quarantined(home.store, chain(home.store, "acme"))
    assert (entry["number"], entry["offset"], entry["code"]) == (57, data.index(b'{"messages": NaN}'), "not_finite")


def test_a_line_that_is_too_long_costs_itself_alone(tmp_path, small):
    home = world(tmp_path)
    records = [json.dumps(chat({"role": "user", "content": f"number {at}"})).encode() for at in range(40)]
    long = json.dumps(chat({"role": "user", "content": "x" * 4000})).encode()
    home.land("x.jsonl", b"\n".join([*records[:20], long, *records[20:]]))
    assert home.ingest().stored == 40
    (entry,) = quarantined(home.store, chain(home.store, "acme"))
    assert (entry["code"], entry["number"], entry["bytes"]) == ("line_too_long", 20, len(long))
    assert (entry["offset"], entry["digest"]) == (len(b"\n".join(records[:20])) + 1, hashlib.sha256(long).hexdigest())
    assert f"x.jsonl#{40}" in set(index(home.store, "acme")["source"])


def test_what_must_be_read_whole_is_refused_beyond_its_bound_and_the_rest_goes_on(tmp_path, small):
    home = world(tmp_path)
    big = json.dumps([chat({"role": "user", "content": f"{at}"}) for at in range(200)]).encode()
    home.land("a.json", big)
    home.land("b.json", [chat()])
    report = home.ingest()
    assert (report.stored, report.reasons, report.formats) == (
        1,
        {"too_large": 1},
        {"unrecognised": 1, "openai_chat": 1},
    )
    (entry,) = quarantined(home.store, chain(home.store, "acme"))
    assert (entry["digest"], entry["bytes"]) == (hashlib.sha256(big).hexdigest(), len(big))
    assert "write one record a line" in entry["reason"]


def test_two_long_files_that_nobody_knows_are_two_entries(tmp_path, small, monkeypatch):
    monkeypatch.setattr(cutting, "KEPT_CONTENT_BYTES", 100)
    home = world(tmp_path)
    for name in "ab":
        home.land(f"{name}.txt", name.encode() * 1000)
    assert home.ingest().reasons == {"unrecognised_format": 2}
    assert len(quarantined(home.store, chain(home.store, "acme"))) == 2
    assert home.ingest().batch is None


def test_compressed_lines_come_in_with_the_offsets_of_their_text(tmp_path, small):
    home = world(tmp_path)
    text = b"\n".join(json.dumps(chat({"role": "user", "content": f"number {at}"})).encode() for at in range(50))
    path = home.land("x.jsonl.gz", gzip.compress(text))
    assert home.ingest().stored == 50
    frame = index(home.store, "acme")
    assert all(text[offset:].startswith(b'{"messages"') for offset in frame["offset"])
    (source,) = chain(home.store, "acme")[0].sources
    assert source.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert source.raw is not None


def test_a_damaged_container_is_set_aside(tmp_path):
    home = world(tmp_path)
    home.land("x.parquet", b"PAR1 and no more")
    home.land("y.jsonl", [chat()])
    report = home.ingest()
    assert (report.stored, report.quarantined) == (1, 1)
