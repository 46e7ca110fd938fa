"""A right that ends: who saw the data, what is marked, and what becomes of the versions that serve."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from loop_world import MANIFEST, small_manifest
from partner_world import FIRST, PARTNER, TENANT, WORD, end, land, policy, produce
from release_world import a_decision

from ratchet.contracts.canonical import canonical_json
from ratchet.errors import IntegrityError, RightsError, TransitionError
from ratchet.intake import records
from ratchet.loop import affected, deciding
from ratchet.loop.context import Run, open_run
from ratchet.loop.lineage import Lineage, record_training
from ratchet.loop.tracing import trace, trace_grant, trace_version
from ratchet.policies.record import seal
from ratchet.release.ledger import Ledger as ReleaseLedger
from ratchet.release.records import Version
from ratchet.release.states import State
from ratchet.rights import authorise


@pytest.fixture
def home(both: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(both, tmp_path / "home"))


def names(found: dict[str, Any]) -> dict[str, str]:
    return {one["policy"]: one["how"] for one in found["policies"]}


def test_a_grant_is_followed_to_its_batches_datasets_policies_and_versions(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        found = trace_grant(home, PARTNER, run.now())
        assert [batch["trajectories"] for batch in found["batches"]] == [1]
        assert {one["purpose"]: one["records"] for one in found["datasets"]} == {"train_sft": 1, "train_rl": 1}
        assert names(found)["sft"].startswith("learned from 1 of its records (train_sft, dataset ")
        assert names(found)["grpo"] == f"started from sft ({policy(run, 'sft').digest[:12]})"
        assert "baseline" not in names(found)
        stated = {one["policy"]: one["versions"][0]["version"] for one in found["policies"]}
    held = ReleaseLedger.of(home).versions()
    assert {name: held[identity][0].policy.name for name, identity in stated.items()} == {"sft": "sft", "grpo": "grpo"}


def test_a_version_is_followed_back_to_every_grant_by_any_of_its_names(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        grpo, now = policy(run, "grpo"), run.now()
    identity = next(key for key, (one, _) in ReleaseLedger.of(home).versions().items() if one.policy.name == "grpo")
    for text in (grpo.digest, grpo.digest[:12], identity[:12], "grpo", f"{TENANT}.{MANIFEST.experiment}/2"):
        found = trace(home, text, now)
        assert found["policy"]["digest"] == grpo.digest
        assert [one["policy"] for one in found["chain"]] == ["grpo", "sft", "baseline"]
        assert {one["grant_id"]: one["state"] for one in found["grants"]} == {FIRST: "active", PARTNER: "active"}
    assert trace_version(home, "baseline", now)["grants"] == []
    with pytest.raises(TransitionError, match="names none"):
        trace(home, "nobody", now)
    with pytest.raises(TransitionError, match="has 2 versions"):
        trace(home, f"{TENANT}.{MANIFEST.experiment}/9", now)
    with pytest.raises(RightsError, match="no such grant"):
        trace_grant(home, "nobody", now)


def test_changed_evidence_is_not_traced(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        place = run.store.path(policy(run, "sft").training["record"])
        place.write_bytes(place.read_bytes().replace(b'"partner":1', b'"partner":2'))
    with pytest.raises(IntegrityError, match="trainings/sft"):
        Lineage(home)


def test_what_learned_from_episodes_of_an_affected_policy_is_affected_too(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        sft, baseline = policy(run, "sft"), policy(run, "baseline")

        def sampled(record: dict[str, Any]) -> None:
            record["trajectory_id"] = "sampled"
            record["extra"]["ratchet"].update(policy="sampler", policy_digest=sft.digest)

        # Episodes that `sft` sampled come in under the first grant, as the loop's own rollouts do.
        land(run, "sampled.jsonl", sampled, grant_id=FIRST)
        other = open_run(home, small_manifest(experiment="second"))
        dataset = authorise(
            other.rights, records(run.store, TENANT, policy="sampler"), purpose="train_sft", tenant=TENANT,
            base_model="package:starter", at=run.now(), manifest_digest=other.manifest.digest,
        )  # fmt: skip
        assert dataset.grant_ids == (FIRST,)
        other.store.create(other.name("datasets", f"{dataset.digest}.json"), dataset.to_bytes())
        place = record_training(other, "sft", "sft", baseline, dataset, reads=True)
        facts = {"dataset": dataset.digest, "record": place}
        made = sft.model_copy(update={"weights_digest": "0" * 64, "parent": baseline.digest, "training": facts})
        other.store.create(other.name("policies", "sft", "policy.json"), seal(made))
    cause = Lineage(home).causes(PARTNER)[made.digest]
    assert (cause.how, cause.steps) == (f"learned from episodes of sft ({sft.digest[:12]})", 1)


def test_a_right_that_ends_marks_every_policy_once_and_refuses_promotion_by_name(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        assert affected.mark(home, PARTNER, run.now()) == []
        end(run)
        for _ in range(2):
            marks = affected.mark(home, PARTNER, run.now())
            assert {one.name: one.state for one in marks} == dict.fromkeys(("sft", "grpo"), "affected_withdrawn")
        ledger = ReleaseLedger.of(home)
        assert sorted(event.kind for event in ledger.history()).count("withdrawn") == 2
        version = ledger.find("grpo")
        with pytest.raises(RightsError, match=r"promotion of grpo .*affected_withdrawn.*grant 'partner'.*unlearned"):
            affected.approve(home, ledger, version, by="Olga", reason="nice", upto="canary", at=run.now())
        with pytest.raises(RightsError, match=r"promotion of grpo .* to staging.*affected_withdrawn"):
            produce(run, "grpo")
        assert ledger.state(version) is State.CANDIDATE
        assert [one.grant_id for one in affected.marks_of(run.store, TENANT, version.policy.digest)] == [PARTNER]
    ledger.verify()


def test_a_right_that_ends_between_decision_and_promotion_stops_the_promotion(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        end(run)
        candidate = policy(run, "grpo")
        place = run.store.path(run.name("decision.json"))
        place.write_bytes(a_decision(run.manifest, candidate, policy(run, "baseline")).to_bytes())
        with pytest.raises(RightsError, match=r"promotion of grpo .*grant 'partner' is withdrawn"):
            deciding.registered_versions(run)


def test_a_narrowed_right_refuses_promotion_but_marks_nothing(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        end(run, "narrow", purposes=("evaluate",))
        ledger = ReleaseLedger.of(home)
        with pytest.raises(RightsError, match=r"promotion of grpo .*does not cover the purpose"):
            affected.approve(home, ledger, ledger.find("grpo"), by="Olga", reason="x", upto="canary", at=run.now())
        assert affected.follow(home, PARTNER, run.now()) == []


def released(home: Path, **release: Any) -> tuple[Run, Version, Version]:
    """The baseline and then `grpo` in production, under a manifest with other release rules."""
    run = open_run(home, MANIFEST)
    return run, produce(run, "baseline", **release), produce(run, "grpo", **release)


@pytest.mark.parametrize(
    ("asked", "state", "serves"),
    [
        ("keep", State.PRODUCTION, "grpo"),
        ("quarantine", State.QUARANTINED, "baseline"),
        ("roll_back", State.ROLLED_BACK, "baseline"),
        ("retrain", State.PRODUCTION, "grpo"),
    ],
)
def test_a_version_in_production_follows_the_policy_of_its_manifest(
    home: Path, asked: str, state: State, serves: str
) -> None:
    run, clean, version = released(home, on_withdrawal=asked)
    with run:
        end(run)
        found = [one for one in affected.follow(home, PARTNER, run.now()) if one.version.id == version.id]
        assert [(one.policy, one.before, one.state) for one in found] == [(asked, State.PRODUCTION, state)]
        assert found[0].retrain is (asked == "retrain")
        ledger = ReleaseLedger.of(home)
        serving = ledger.current(TENANT, MANIFEST.experiment).production
        assert serving is not None
        assert serving.policy.name == serves
        assert ledger.state(clean) is (State.PRODUCTION if serves == "baseline" else State.SUPERSEDED)
        moved = [event for event in ledger.history() if event.version == version.id and event.state is state]
        assert "grant 'partner' withdrawn on" in moved[-1].reason
        before = len(ledger.history())
        affected.follow(home, PARTNER, run.now())
        assert len(ledger.history()) == before
        ledger.verify()


def test_a_retraining_that_misses_its_deadline_ends_in_quarantine(home: Path) -> None:
    run, _, version = released(home, on_withdrawal="retrain", withdrawal_deadline_days=10)
    with run:
        end(run)
        (found,) = [one for one in affected.follow(home, PARTNER, run.now()) if one.version.id == version.id]
        assert found.due is not None
        assert timedelta(days=9) < found.due - run.now() <= timedelta(days=10)
        affected.follow(home, PARTNER, found.due - timedelta(seconds=1))
        assert ReleaseLedger.of(home).state(version) is State.PRODUCTION
        affected.follow(home, PARTNER, found.due)
        assert ReleaseLedger.of(home).state(version) is State.QUARANTINED


def test_an_affected_version_is_never_put_back(home: Path) -> None:
    run, _, _ = released(home, on_withdrawal="keep")
    with run:
        ledger = ReleaseLedger.of(home)
        twin = policy(run, "baseline").model_copy(update={"name": "twin", "weights_digest": "0" * 64})
        run.store.create(run.name("policies", "twin", "policy.json"), seal(twin))
        third = produce(run, "twin")
        end(run)
        affected.follow(home, PARTNER, run.now())
        _, restored = ledger.rollback(TENANT, MANIFEST.experiment, by="Olga", reason="slow")
        assert ledger.state(third) is State.ROLLED_BACK
        assert restored is not None
        assert restored.policy.name == "baseline"


def test_an_expired_right_follows_its_own_policy(home: Path) -> None:
    run, _, version = released(home, on_withdrawal="quarantine", on_expiry="keep")
    with run:
        later = run.now() + timedelta(days=31)
        found = [one for one in affected.follow(home, PARTNER, later) if one.version.id == version.id]
        assert [(one.ended, one.policy, one.state) for one in found] == [("expired", "keep", State.PRODUCTION)]
        assert {row["rights"] for row in affected.overview(home, TENANT)} == {"affected_expired"}
        end(run)
        affected.follow(home, PARTNER, later)
        assert ReleaseLedger.of(home).state(version) is State.QUARANTINED
        assert {row["rights"] for row in affected.overview(home, TENANT)} == {"affected_withdrawn"}


def test_marks_say_what_they_are_about_and_nothing_of_the_data(home: Path) -> None:
    with open_run(home, MANIFEST) as run:
        end(run)
        marks = affected.mark(home, PARTNER, run.now())
        assert WORD not in canonical_json([one.model_dump(mode="json") for one in marks])
