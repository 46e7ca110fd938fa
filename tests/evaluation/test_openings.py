"""Openings of a held-out set: logged before it is read, once per policy and evaluation, counted over all runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from heldout_rows import plan

from ratchet.contracts.policy import Decoding, Harness, Policy
from ratchet.errors import EvaluationError, IntegrityError
from ratchet.evaluation.openings import Conditions, judged, log_opening, openings, require_opening, set_digest
from ratchet.store import LocalStore, Store

AT = datetime(2026, 1, 1, tzinfo=UTC)
SET = tuple((f"task-{index}", f"digest-{index}") for index in range(6))


def policy(name: str) -> Policy:
    harness = Harness(tools=("submit",), max_calls=2, decoding=Decoding(temperature=1.0, max_tokens_per_turn=3))
    return Policy(name=name, method="sft", checkpoint="c", weights_digest=f"w-{name}", harness=harness)


def conditions(heldout: tuple[tuple[str, str], ...] = SET, lock: str = "lock", seeds: tuple[int, ...] = (0, 1)):
    return Conditions(heldout, lock, "environment", "reward", seeds)


def opened(
    store: Store, name: str, what: Conditions | None = None, *, candidate: bool = True, run: str = "a", day: int = 0
) -> bool:
    return log_opening(
        store, what or conditions(), policy(name), candidate=candidate, experiment=run, by="ada",
        at=AT + timedelta(days=day),
    )  # fmt: skip


def test_an_opening_says_who_when_and_on_what(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert openings(store, SET) == []
    assert opened(store, "sft")
    (found,) = openings(store, SET)
    assert (found.policy, found.policy_digest, found.tasks) == ("sft", policy("sft").digest, 6)
    assert (found.experiment, found.by, found.at, found.candidate) == ("a", "ada", AT, True)
    assert (found.set_digest, found.lock_digest) == (set_digest(SET), "lock")


def test_an_evaluation_that_is_resumed_is_the_same_opening(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert opened(store, "sft")
    assert not opened(store, "sft", day=3)
    assert not opened(store, "sft", conditions(tuple(reversed(SET))))
    (found,) = openings(store, SET)
    assert found.at == AT


def test_other_seeds_another_lock_or_another_policy_are_other_openings(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for number, what in enumerate((conditions(), conditions(seeds=(0,)), conditions(lock="other"))):
        assert opened(store, "sft", what, day=number)
    assert opened(store, "dpo", day=3)
    assert [one.policy for one in openings(store, SET)] == ["sft", "sft", "sft", "dpo"]
    assert [one.policy for one in judged(openings(store, SET)).values()] == ["sft", "dpo"]


def test_runs_whose_sets_are_the_same_share_the_count_whatever_their_locks_are(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for number in range(4):
        opened(store, f"sft-{number}", conditions(lock=f"lock-{number}"), run=f"run-{number}", day=number)
    assert [one.experiment for one in openings(store, SET)] == [f"run-{number}" for number in range(4)]
    assert len(judged(openings(store, reversed(SET)))) == 4


def test_a_set_from_which_a_task_was_withdrawn_keeps_its_openings(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    opened(store, "first")
    smaller = SET[1:]
    opened(store, "second", conditions(smaller, lock="version 2"), day=1)
    for heldout in (SET, smaller, SET[:2]):
        assert [one.policy for one in openings(store, heldout)] == ["first", "second"]
    assert openings(store, [("task-0", "another content")]) == []


def test_the_incumbent_is_opened_but_is_no_candidate(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    opened(store, "baseline", candidate=False)
    opened(store, "sft")
    assert len(openings(store, SET)) == 2
    assert set(judged(openings(store, SET))) == {policy("sft").digest}


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_an_opening_that_was_struck_out_is_missed(tmp_path: Path, number: int, harm: str) -> None:
    store = LocalStore(tmp_path)
    for name in ("one", "two", "three"):
        opened(store, name)
    place = f"openings/{set_digest(SET)}/log/{number:06d}.json"
    data = store.read(place)
    store.delete(place)
    if harm == "changed":
        store.create(place, data.replace(b'"ada"', b'"bob"'))
    for ask in (lambda: openings(store, SET), lambda: opened(store, "four")):
        with pytest.raises(IntegrityError, match=place):
            ask()


def test_a_set_that_was_exchanged_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    opened(store, "one")
    place = f"openings/{set_digest(SET)}/tasks.json"
    store.delete(place)
    store.create(place, b'[["task-0", "digest-9"]]')
    with pytest.raises(IntegrityError, match=place):
        openings(store, SET)


def test_nothing_runs_on_tasks_whose_opening_was_not_logged(tmp_path: Path) -> None:
    store, what, sft = LocalStore(tmp_path), plan(3, 2), policy("sft")
    with pytest.raises(EvaluationError, match="logged before it is read"):
        require_opening(store, what, sft.digest, sft.harness.digest)
    opened(store, "sft", Conditions.of(what))
    require_opening(store, what, sft.digest, sft.harness.digest)
    with pytest.raises(EvaluationError, match="logged before it is read"):
        require_opening(store, what, policy("dpo").digest, sft.harness.digest)
