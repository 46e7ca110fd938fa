"""The incumbent: what is in production when an evaluation is opened, pinned once and compared with every candidate."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from loop_world import MANIFEST, prepare
from partner_world import end, policy
from release_world import a_decision
from second_world import finish, promoted, second_manifest

from ratchet.errors import (
    ContaminationError,
    EvaluationError,
    IntegrityError,
    PermissionsError,
    RightsError,
    TrainingError,
    TransitionError,
)
from ratchet.evaluation.economics import INCUMBENT
from ratchet.loop import deciding, incumbent, judging, learning
from ratchet.loop.context import Run, open_run, reopen_run
from ratchet.policies.record import seal
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version
from ratchet.rights import Ledger as RightsLedger

SECOND = second_manifest()


@pytest.fixture(scope="session")
def serving(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a policy of the first experiment in production, and the second one ready to train; copy it."""
    home = Path(shutil.copytree(finished, tmp_path_factory.mktemp("serving") / "home"))
    with reopen_run(home, MANIFEST.run_id) as run:
        promoted(run, "grpo" if deciding.chosen(run).name == "sft" else "sft")
    with open_run(home, SECOND) as run:
        prepare(run)
    return home


@pytest.fixture
def run(serving: Path, tmp_path: Path) -> Iterator[Run]:
    home = Path(shutil.copytree(serving, tmp_path / "home"))
    with open_run(home, SECOND) as opened:
        yield opened


@pytest.fixture(scope="module")
def compared(serving: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The second experiment, decided."""
    home = Path(shutil.copytree(serving, tmp_path_factory.mktemp("compared") / "home"))
    with open_run(home, SECOND) as opened:
        finish(opened)
        yield opened


def serves(run: Run) -> Version:
    """The version in production."""
    held = Ledger.of(run.home).current(run.manifest.tenant, run.manifest.experiment).production
    assert held is not None
    return held


def test_what_is_in_production_is_pinned_once_and_stays_whatever_moves(run: Run) -> None:
    held = incumbent.pin(run)
    assert (held.version, held.environment) == (serves(run).id, "repair 1")
    Ledger.of(run.home).rollback(run.manifest.tenant, run.manifest.experiment, by="Olga", reason="slow")
    assert incumbent.pin(run) == held
    assert judging.incumbent(run).name == "incumbent"


def test_where_nothing_is_in_production_the_baseline_is_the_incumbent(run: Run) -> None:
    Ledger.of(run.home).rollback(run.manifest.tenant, run.manifest.experiment, by="Olga", reason="slow")
    assert incumbent.pin(run).version is None
    assert judging.incumbent(run).name == "baseline"
    assert incumbent.reference_names(run) == ["baseline"]
    assert incumbent.start_version(run) is None


def test_an_incumbent_whose_checkpoint_is_gone_is_named_and_nothing_is_pinned(run: Run) -> None:
    held = serves(run)
    folder = run.store.folder(held.policy.checkpoint)
    shutil.move(folder, folder.with_name("away"))
    with pytest.raises(EvaluationError, match=f"checkpoint of the incumbent {held.policy.name} .* or roll production"):
        incumbent.pin(run)
    assert incumbent.pinned(run) is None
    shutil.move(folder.with_name("away"), folder)
    assert incumbent.pin(run).version == serves(run).id


def test_an_incumbent_that_asks_for_more_than_the_manifest_permits_is_refused(run: Run) -> None:
    narrow = SECOND.environment.model_copy(update={"tools": SECOND.environment.tools[:-1]})
    with (
        open_run(run.home, SECOND.model_copy(update={"environment": narrow})) as other,
        pytest.raises(PermissionsError, match=r"harness of the incumbent .* asks for tool 'edit_tests'"),
    ):
        incumbent.pin(other)


def test_a_changed_pin_opens_nothing(run: Run) -> None:
    incumbent.pin(run)
    place = run.store.path(run.name("incumbent.json"))
    place.write_bytes(place.read_bytes().replace(b'"seq":', b'"seq":1'))
    with pytest.raises(IntegrityError, match=r"incumbent\.json"):
        judging.incumbent(run)


def test_a_start_whose_certificate_is_missing_or_whose_right_ended_is_refused(run: Run) -> None:
    place = next(run.store.path("certificates").rglob("*.json"))
    shutil.move(place, place.with_suffix(".away"))
    with pytest.raises(IntegrityError, match=r"certificates/"):
        incumbent.start_version(run)
    shutil.move(place.with_suffix(".away"), place)
    assert incumbent.start_version(run) is not None
    run.rights = RightsLedger.at_home(run.home)
    end(run, grant_id=MANIFEST.grants[0].grant_id)
    with pytest.raises(RightsError, match="withdrawn"):
        incumbent.start_version(run)


def test_an_ancestor_that_learned_from_tasks_locked_here_is_refused(run: Run) -> None:
    elsewhere = SECOND.model_copy(update={"seed": SECOND.seed + 1})
    with open_run(run.home, elsewhere) as other:
        prepare(other)
        start = incumbent.start_version(other)
        assert start is not None
        with pytest.raises(ContaminationError, match=r"whose ancestor \w+ of .* used \d+ tasks locked here"):
            incumbent.certified_ancestors(other, start)


def test_an_ancestor_of_another_base_is_refused(run: Run) -> None:
    run.manifest = SECOND.model_copy(update={"base": SECOND.base.model_copy(update={"checkpoint": "random"})})
    run.name = lambda *parts: "/".join(("experiments", SECOND.run_id, *parts))  # type: ignore[method-assign]
    start = incumbent.start_version(run)
    assert start is not None
    with pytest.raises(TrainingError, match="made from 'package:starter'"):
        incumbent.certified_ancestors(run, start)


@pytest.mark.slow
def test_every_candidate_is_compared_with_it_everywhere(compared: Run) -> None:
    cards = judging.scorecards(compared)
    assert [card.name for card in cards] == ["incumbent", "baseline", "fresh", "further"]
    first = cards[0]
    assert first.comparison is None
    for card in cards[1:]:
        assert card.comparison is not None
        assert (card.comparison.reference, card.comparison.reference_digest) == ("incumbent", first.policy_digest)
        assert card.incumbent_rows_digest == first.rows_digest
    decision = deciding.open_decision(compared)
    assert (decision.incumbent, decision.incumbent_digest) == ("incumbent", first.policy_digest)
    assert decision.incumbent_version == serves(compared).id
    report = deciding.report_of(compared)
    assert [one["name"] for one in report["policies"]] == ["incumbent", "baseline", "fresh", "further"]
    assert report["policies"][0]["paired_difference"] == {"not_computable": INCUMBENT.reason}
    assert report["lineage"]["incumbent"]["version"] == serves(compared).id
    for name in ("fresh", "further"):
        assert judging.open_policy_audit(compared, name).incumbent_digest == first.policy_digest


@pytest.mark.slow
def test_what_started_from_it_carries_its_grants_certificates_and_costs(compared: Run) -> None:
    further, fresh = policy(compared, "further"), policy(compared, "fresh")
    assert further.parent == serves(compared).policy.digest
    source = judging.incumbent(compared)
    behind = [one.policy for one in incumbent.ancestors(compared, source)]
    assert behind[0].digest == source.digest
    assert [one.name for one in behind] in (["sft"], ["grpo", "sft"])
    assert len(further.training["ancestor_certificates"]) == len(behind)
    spent, own = judging.investment(compared, further), judging.investment(compared, fresh)
    sunk = sum(one.training["seconds"] for one in behind) / 3600 * 0.60
    assert spent.cumulative == pytest.approx(spent.stage + sunk)
    assert judging.investment(compared, source).cumulative == pytest.approx(sunk)
    assert spent.beyond_incumbent == spent.stage
    assert own.beyond_incumbent == own.cumulative == own.stage
    found = deciding.gate_inputs(compared, further)
    assert found.contamination is not None
    assert found.contamination.passed
    assert len([right for right in found.rights if right.grant_id.endswith("/train_sft")]) == 2
    assert len(found.rights) == 1 + len(behind)


@pytest.mark.slow
def test_a_second_call_reuses_everything(compared: Run) -> None:
    assert all(stage.reused for stage in finish(compared))


@pytest.mark.slow
def test_a_candidate_that_is_the_incumbent_itself_is_rejected_as_such(serving: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(serving, tmp_path / "home"))
    one = second_manifest(methods=[second_manifest().methods[1].model_dump(mode="json")])
    with open_run(home, one) as run:
        prepare(run)
        learning.train_method(run, "sft")
        made, source = policy(run, "further"), serves(run).policy
        place = run.name("policies", "further", "policy.json")
        run.store.delete(place)
        same = made.model_copy(update={"checkpoint": source.checkpoint, "weights_digest": source.weights_digest})
        run.store.create(place, seal(same))
        finish(run)
        assert judging.heldout_rows(run).summary.endswith("x 2 policies, none missing or double")
        decision = deciding.open_decision(run)
        assert [card.name for card in judging.scorecards(run)] == ["incumbent", "baseline", "further"]
    assert decision.state == "reject"
    assert decision.reasons[0] == "weights and harness are those of the incumbent"


def test_a_decision_names_its_incumbent_and_the_ledger_refuses_it_once_that_has_moved(run: Run) -> None:
    ledger = Ledger.of(run.home)
    version = ledger.register(SECOND, policy(run, "baseline").model_copy(update={"name": "late"}), by="Ada")
    against = incumbent.pin(run)
    assert against.policy is not None
    decision = a_decision(SECOND, version.policy, against.policy, version=against.version)
    ledger.apply(version, decision)
    ledger.rollback(run.manifest.tenant, run.manifest.experiment, by="Olga", reason="slow")
    for state in ("canary", "production"):
        with pytest.raises(TransitionError, match=f"against incumbent .{against.version[:12]}.*no version: the base"):
            ledger.approve(version, by="Olga", reason="good", upto=state)
