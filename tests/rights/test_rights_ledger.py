"""The rights ledger on disk: chained, append-only, and noticing every change."""

import json
import multiprocessing
from datetime import UTC, datetime, timedelta

import pytest

from ratchet.errors import ConflictError, IntegrityError, RightsError
from ratchet.rights import Event, Ledger

START = datetime(2030, 1, 1, tzinfo=UTC)


def grant(name="g", tenant="acme", **fields):
    values = {
        "purposes": ("train_sft", "evaluate"),
        "base_models": ("small",),
        "retention_until": START + timedelta(days=90),
        "by": "owner",
        "at": START,
    }
    return Event(kind="grant", grant_id=name, tenant=tenant, **values | fields)


def event(kind, name="g", tenant="acme", **fields):
    return Event(kind=kind, grant_id=name, tenant=tenant, by="owner", at=START + timedelta(days=1), **fields)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.at_home(tmp_path)
    for name in ("g", "h", "i"):
        ledger.append(grant(name))
    ledger.append(event("withdraw", "h"))
    return ledger


def test_it_reads_back_what_was_appended(ledger):
    again = Ledger(ledger.path)
    assert again.events == ledger.events
    assert again.head == ledger.head
    assert again.effective("h", START + timedelta(days=2)).state == "withdrawn"


def test_another_process_s_events_are_seen_by_refresh(ledger):
    other = Ledger(ledger.path)
    other.append(event("withdraw", "g"))
    ledger.refresh()
    assert ledger.effective("g", START + timedelta(days=2)).state == "withdrawn"


@pytest.mark.parametrize("line", [1, 2, 4])
def test_an_edited_line_is_named_when_the_ledger_is_opened(ledger, line):
    lines = ledger.path.read_bytes().split(b"\n")
    lines[line - 1] = lines[line - 1].replace(b"acme", b"evil")
    ledger.path.write_bytes(b"\n".join(lines))
    with pytest.raises(IntegrityError, match=f"line {line}\\b"):
        Ledger(ledger.path)


def test_an_edit_that_mends_its_own_digest_breaks_the_next_line(ledger):
    from ratchet.contracts.canonical import canonical_json, digest

    lines = [json.loads(line) for line in ledger.path.read_bytes().splitlines()]
    lines[1]["event"]["by"] = "someone else"
    lines[1]["digest"] = digest({key: lines[1][key] for key in ("seq", "previous", "event")})
    ledger.path.write_text("".join(canonical_json(line) + "\n" for line in lines))
    with pytest.raises(IntegrityError, match="line 3"):
        Ledger(ledger.path)


def test_removed_inserted_and_swapped_lines_are_found(ledger):
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    for changed in (lines[1:], [*lines[:1], lines[0], *lines[1:]], [lines[1], lines[0], *lines[2:]]):
        ledger.path.write_bytes(b"".join(changed))
        with pytest.raises(IntegrityError, match=r"line [12]"):
            Ledger(ledger.path)


def test_a_withdrawal_cut_off_the_end_is_found(ledger):
    ledger.path.write_bytes(b"".join(ledger.path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(IntegrityError, match=r"line 4.*had 4 lines"):
        Ledger(ledger.path)
    with pytest.raises(IntegrityError, match="gone"):
        ledger.refresh()


def test_a_torn_append_is_dropped_by_the_next_one(ledger):
    with open(ledger.path, "ab") as file:
        file.write(b'{"seq":4,"previous":"')
    reopened = Ledger(ledger.path)
    reopened.append(event("withdraw", "i"))
    assert [item.kind for item in Ledger(ledger.path).events] == ["grant"] * 3 + ["withdraw"] * 2


def test_a_grant_id_is_granted_once_even_after_withdrawal(ledger):
    with pytest.raises(ConflictError, match="granted once"):
        ledger.append(grant("h"))


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (event("withdraw", "unknown"), "needs a grant"),
        (event("withdraw", tenant="other"), "another tenant"),
        (event("narrow", purposes=("train_sft", "train_rl")), "may not add train_rl"),
        (event("narrow", base_models=("large",)), "may not add large"),
        (event("narrow", retention_until=START + timedelta(days=91)), "may not add 2030"),
        (event("legal_hold"), "placed or lifted"),
        (grant("new", purposes=()), "names purposes"),
    ],
)
def test_events_that_would_widen_or_concern_nobody_are_refused_and_leave_no_line(ledger, wrong, rule):
    before = ledger.path.read_bytes()
    with pytest.raises(RightsError, match=rule):
        ledger.append(wrong)
    assert ledger.path.read_bytes() == before


def _append(path, name):
    ledger = Ledger(path)
    for number in range(10):
        ledger.append(grant(f"{name}-{number}"))


def test_processes_that_append_at_once_lose_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append, args=(path, name)) for name in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({item.grant_id for item in Ledger(path).events}) == 30
