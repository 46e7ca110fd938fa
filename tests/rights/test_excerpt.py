"""Rights as of a head: what was appended later does not count, in the ledger and in an excerpt that shows no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet.errors import IntegrityError
from ratchet.rights import Event, Ledger
from ratchet.rights.chain import GENESIS
from ratchet.rights.excerpt import Excerpt, excerpt

AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two grants, of which the first is withdrawn, dated back to its beginning, after a third event."""
    found = Ledger(tmp_path / "ledger.jsonl")
    for grant in ("ours", "zwetschge"):
        found.append(
            Event(
                kind="grant", grant_id=grant, tenant="acme", by="Ada", at=AT, purposes=("train_sft",),
                base_models=("*",), retention_until=AT + timedelta(days=30),
            )
        )  # fmt: skip
    return found


def withdraw(ledger: Ledger) -> None:
    ledger.append(
        Event(kind="withdraw", grant_id="ours", tenant="acme", by="Ada", at=AT + timedelta(seconds=1), reason="x")
    )


def test_line_appended_later_does_not_count_whatever_its_time(ledger: Ledger) -> None:
    before, later = ledger.head, AT + timedelta(days=1)
    withdraw(ledger)
    assert ledger.effective("ours", later).state == "withdrawn"
    assert ledger.as_of("ours", before, later).state == "active"
    assert ledger.as_of("ours", ledger.head, later).state == "withdrawn"


def test_grant_is_unknown_before_it_was_given(ledger: Ledger) -> None:
    first = ledger.head
    assert ledger.as_of("ours", GENESIS, AT).state == "missing"
    assert ledger.as_of("never", first, AT).state == "missing"


def test_head_that_never_was_is_refused(ledger: Ledger) -> None:
    with pytest.raises(IntegrityError, match="must once have been the head"):
        ledger.as_of("ours", "f" * 64, AT)


def test_excerpt_says_the_same_and_shows_no_other_grant(ledger: Ledger) -> None:
    before, later = ledger.head, AT + timedelta(days=1)
    withdraw(ledger)
    data = b"".join(excerpt(ledger, {"ours"}))
    assert b"zwetschge" not in data
    found = Excerpt(data, "excerpt")
    for head in (before, ledger.head):
        assert found.as_of("ours", head, later) == ledger.as_of("ours", head, later)
    assert found.as_of("zwetschge", ledger.head, later).state == "missing"
    with pytest.raises(IntegrityError, match="must once have been the head"):
        found.as_of("ours", "f" * 64, later)


def test_every_flipped_bit_of_a_shown_line_is_noticed(ledger: Ledger) -> None:
    withdraw(ledger)
    data = b"".join(excerpt(ledger, {"ours"}))
    Excerpt(data, "excerpt")
    first, _, _ = data.splitlines(keepends=True)
    for at in range(len(first) - 1):
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(IntegrityError, match="excerpt line 1"):
            Excerpt(flipped, "excerpt")


def test_closed_line_that_was_exchanged_breaks_the_chain(ledger: Ledger) -> None:
    withdraw(ledger)
    lines = b"".join(excerpt(ledger, {"ours"})).splitlines(keepends=True)
    lines[1] = lines[1].replace(lines[1][12:20], b"00000000")
    with pytest.raises(IntegrityError, match="excerpt line 3"):
        Excerpt(b"".join(lines), "excerpt")
