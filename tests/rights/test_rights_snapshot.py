"""A ledger with a snapshot answers as one without, and hides no change of what was folded."""

import os
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.errors import IntegrityError
from ratchet.rights import Event, Ledger, fold
from ratchet.rights import ledger as module
from ratchet.rights.chain import GENESIS, decode, encode

START = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = ("a", "b", "é", "zz")


def event(kind, name, days=0.0, **fields):
    return Event(kind=kind, grant_id=name, tenant=f"t{NAMES.index(name) % 2}", by="x",
                 at=START + timedelta(days=days), **fields)  # fmt: skip


def granted(name):
    return event("grant", name, purposes=("train_sft", "evaluate"), base_models=("*",),
                 retention_until=START + timedelta(days=50))  # fmt: skip


days = st.integers(0, 60)
later = st.one_of(
    st.builds(lambda n, d: event("withdraw", n, d), st.sampled_from(NAMES), days),
    st.builds(lambda n, d: event("expire", n, d), st.sampled_from(NAMES), days),
    st.builds(lambda n, d, h: event("legal_hold", n, d, hold=h), st.sampled_from(NAMES), days, st.booleans()),
    st.builds(lambda n, d: event("narrow", n, d, purposes=("evaluate",)), st.sampled_from(NAMES), days),
)


def write(path, events):
    head = GENESIS
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        for seq, one in enumerate(events):
            line = encode(seq, head, one)
            head = decode(line, seq, head)[0]
            file.write(line)


def snapshots(path):
    return [name for name in os.listdir(path.parent) if name.endswith(".snapshot")]


@pytest.fixture
def every(monkeypatch):
    monkeypatch.setattr(module, "SNAPSHOT_EVERY", 5)


@settings(max_examples=60, deadline=None)
@given(st.lists(later, max_size=14), st.integers(-1, 70), st.integers(0, 18))
def test_rights_histories_and_order_are_those_of_the_events(tmp_path_factory, events, day, folded):
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    listed = [*(granted(name) for name in NAMES), *events]
    write(path, listed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SNAPSHOT_EVERY", max(folded, 1))
        Ledger(path)
        ledger = Ledger(path)
    at = START + timedelta(days=day)
    assert ledger.events == tuple(listed)
    for name in NAMES:
        assert ledger.history(name) == tuple(one for one in listed if one.grant_id == name)
        assert ledger.effective(name, at) == fold(name, listed, at)
    assert list(ledger.rights(at)) == [fold(name, listed, at) for name in sorted(NAMES)]
    assert ledger.grants("t1") == ["b", "zz"]


def test_a_folded_ledger_takes_more_events_and_folds_again(tmp_path, every):
    ledger = Ledger.at_home(tmp_path)
    for name in NAMES:
        ledger.append(granted(name))
        ledger.append(event("narrow", name, 1, purposes=("evaluate",)))
    ledger.append(event("withdraw", "a", 2))
    assert len(snapshots(ledger.path)) == 1
    again = Ledger(ledger.path)
    assert (len(again), again.head, again.events) == (9, ledger.head, ledger.events)
    assert again.effective("a", START + timedelta(days=3)).state == "withdrawn"
    assert "a" in again
    assert "unknown" not in again
    assert again.has_head(ledger.head)


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def folded(tmp_path, every):
    ledger = Ledger.at_home(tmp_path)
    for name in NAMES:
        ledger.append(granted(name))
    for day in range(2):
        ledger.append(event("withdraw", "b", 1 + day))
    assert snapshots(ledger.path)
    return ledger


def test_an_edit_of_a_folded_line_is_named_at_start(folded):
    changed = lines(folded.path)
    changed[2] = changed[2].replace(b'"by":"x"', b'"by":"y"')
    folded.path.write_bytes(b"".join(changed))
    with pytest.raises(IntegrityError, match=r"line 3\b.*does not match its digest"):
        Ledger(folded.path)


def test_an_edit_under_an_open_ledger_is_named_when_its_line_is_read(folded):
    changed = lines(folded.path)
    changed[4] = changed[4].replace(b'"by":"x"', b'"by":"y"')
    folded.path.write_bytes(b"".join(changed))
    with pytest.raises(IntegrityError, match=r"line 5\b"):
        folded.history("b")


def test_a_ledger_written_anew_from_some_line_on_is_found_though_its_chain_and_its_anchor_hold(folded):
    kept = list(folded.events[:4])
    folded.path.unlink()
    (folded.path.parent / "ledger.head").unlink()
    write(folded.path, [*kept, event("narrow", "b", 1), event("narrow", "b", 2)])
    with pytest.raises(IntegrityError, match=r"line 5\b.*folded before"):
        Ledger(folded.path)


def test_folded_lines_cut_off_are_found_without_the_anchor(folded):
    folded.path.write_bytes(b"".join(lines(folded.path)[:4]))
    (folded.path.parent / "ledger.head").unlink()
    with pytest.raises(IntegrityError, match=r"had \d lines"):
        Ledger(folded.path)


def test_a_damaged_snapshot_is_passed_over(folded):
    (name,) = snapshots(folded.path)
    path = folded.path.parent / name
    path.write_bytes(path.read_bytes().replace(b"train_sft", b"train_rlx"))
    again = Ledger(folded.path)
    assert again.events == folded.events
    assert again.effective("zz", START).purposes == ("evaluate", "train_sft")
