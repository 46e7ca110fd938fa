"""Every sample of every format is recognised by its own reader and by no other, and reads as whole records."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from span_files import SAMPLES

from ratchet.contracts.trajectory import Trajectory
from ratchet.intake.cutting import Cutter
from ratchet.intake.formats import formats, named, recognise
from ratchet.intake.records import Record, Rejected
from ratchet.intake.validate import trajectory_of

FILES = sorted(path for path in SAMPLES.glob("*/*") if path.is_file())
SCHEMA = jsonschema.Draft202012Validator(json.loads((SAMPLES.parent / "atif_v1_8.schema.json").read_text()))


def label(path: Path) -> str:
    return str(path.relative_to(SAMPLES))


def read(path: Path) -> list[Record | Rejected]:
    """Read a sample as the intake does: unpacked, recognised, cut."""
    pieces = list(Cutter(path, path.name).pieces())
    assert [piece.format for piece in pieces] == [path.parent.name] * len(pieces), [piece.reason for piece in pieces]
    assert pieces
    return [item for piece in pieces for item in named(piece.format).read(piece.data(), path.name)]


def test_every_registered_format_has_samples_and_every_sample_a_format() -> None:
    assert {path.parent.name for path in FILES} == set(formats())


@pytest.mark.parametrize("path", FILES, ids=label)
def test_each_sample_is_recognised_by_its_own_reader_alone_and_reads_as_whole_records(path: Path) -> None:
    found = read(path)
    assert found
    for item in found:
        if isinstance(item, Rejected):
            assert item.code
            assert item.reason
            continue
        trajectory = trajectory_of(item, tenant="acme", grant_id="g")
        assert item.raw
        document = trajectory.model_dump(mode="json", exclude_none=True)
        assert Trajectory.model_validate(document).digest == trajectory.digest
        SCHEMA.validate(document)


@pytest.mark.parametrize("path", FILES, ids=label)
def test_the_same_sample_gives_the_same_records(path: Path) -> None:
    once, again = read(path), read(path)
    assert [item.raw for item in once] == [item.raw for item in again]
    assert [item.document for item in once if isinstance(item, Record)] == [
        item.document for item in again if isinstance(item, Record)
    ]


@pytest.mark.parametrize("name", sorted(formats()))
def test_no_reader_claims_what_is_no_log(name: str) -> None:
    for body in (
        b"",
        b"\n\n",
        b"{}",
        b"[]",
        b"7",
        b"null",
        b"\x00\xff" * 50,
        b"PK\x03\x04" + b"\x00" * 60,
        b"hello\n" * 9,
    ):
        assert not named(name).sniff(body, "x.json"), body


PRINTED = [path for path in FILES if path.suffix in (".json", ".traj") and path.read_bytes()[:1] in (b"{", b"[")]


@pytest.mark.parametrize("path", PRINTED, ids=label)
def test_a_document_is_recognised_however_it_is_written(path: Path) -> None:
    try:
        body = json.loads(path.read_bytes())
    except ValueError:
        pytest.skip("it is cut off on purpose")
    own = [path.parent.name]
    assert recognise(json.dumps(body).encode(), path.name) == own
    assert recognise(json.dumps(body, indent=4).encode(), path.name) == own
    assert recognise(json.dumps(body, ensure_ascii=False).encode("utf-16"), path.name) == own
    if isinstance(body, dict):
        assert recognise(b"\xef\xbb\xbf" + json.dumps([body, body]).encode(), path.name) == own
