"""The judge of a run: labels, the judge itself, its calibration, and the door through which training may be paid by it.

Everything of a judge stands under `judge/<generation>/` of the run: which labels it was made and held against, its
checkpoint where it is a local one, bias audits, calibration, anchors, and the looks at it since (see `judge_drift`). A
recalibration opens the next generation; nothing of an earlier one is overwritten. Items are what agents of the run
handed in on training tasks, read under the purpose `calibrate`; no content of theirs is kept here. An item's split
follows from its id alone, so that runs which share items agree about them.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.judge import JudgeSection
from ratchet.contracts.score import NotComputable
from ratchet.errors import ManifestError, RatchetError
from ratchet.intake import trajectories
from ratchet.loop.context import Run, Stage, stage
from ratchet.loop.data import demonstrations
from ratchet.policies.checkpoint import verified
from ratchet.progress import task as progress
from ratchet.rewards.calibration.calibrate import JudgeCalibration, calibrate, majority, reopen_calibration
from ratchet.rewards.calibration.labels import Label, Labels, LabelSplit, latest
from ratchet.rewards.compose import judge_counts
from ratchet.rewards.judges import bias
from ratchet.rewards.judges.base import Judge, Memory, judge_all
from ratchet.rewards.judges.grading import ItemOf
from ratchet.rewards.judges.rubric import Item, Rubric
from ratchet.rights import AuthorisedDataset

NONE = "the manifest asks for no judge"
SHARES: tuple[tuple[LabelSplit, int], ...] = (("tuning", 60), ("calibration", 90), ("anchor", 100))
"""Split of an item by the percent that its id falls on: below the first number that is above it."""


class Corpus(NamedTuple):
    """What there is to judge."""

    dataset: AuthorisedDataset
    items: dict[str, Item]
    grants: dict[str, set[str]]
    """Grants that each item came in under, by its id: equal work of several logs is one item."""


def section_of(run: Run) -> JudgeSection:
    """The judge as the manifest asks for it. Raises ManifestError where it asks for none."""
    found = run.manifest.reward.judge
    if found is None:
        raise ManifestError("reward.judge", rule=NONE, remedy="state one in the manifest's reward section")
    return found


def rubric_of(run: Run) -> Rubric:
    """The judge's rubric. Raises ManifestError where the environment states none of that name."""
    rubrics: dict[str, Rubric] = getattr(_labelling(run), "RUBRICS", {})
    name = section_of(run).rubric
    if name not in rubrics:
        raise ManifestError(
            "reward.judge.rubric", seen=name, rule=f"it must be one of {sorted(rubrics)}", remedy="correct the name"
        )
    return rubrics[name]


def labels_of(run: Run) -> Labels:
    """The tenant's labels by the judge's rubric."""
    return Labels(run.store, run.manifest.tenant, rubric_of(run))


def memory_of(run: Run) -> Memory:
    """What judges of this home have said before."""
    return Memory(run.home / "cache" / "judgements.db")


def item_of(run: Run) -> ItemOf:
    """How the environment shows a deliverable to a judge."""
    found: ItemOf = _labelling(run).item_of
    return found


def generation(run: Run) -> int:
    """The newest generation of the run's judge, from 1."""
    return max([1, *(int(name) for name in run.store.children(run.name("judge")) if name.isdigit())])


def place(run: Run, *parts: str, of: int | None = None) -> str:
    """Name within the run of something of a generation, the newest one by default."""
    return "/".join(("judge", str(of or generation(run)), *parts))


def split_of(item_id: str) -> LabelSplit:
    """The split that an item belongs to."""
    at = int(digest(item_id)[:8], 16) % 100
    return next(split for split, bound in SHARES if at < bound)


def corpus(run: Run) -> Corpus:
    """Everything that agents of the run handed in on training tasks, as items, and the right to judge it.

    Raises:
        RightsError: the grant does not allow the purpose `calibrate`, or has ended.
    """
    manifest = run.manifest
    agents = {log.agent for log in manifest.logs} | {name for one in manifest.methods for name in one.data.policies}
    dataset = demonstrations(run, sorted(agents), accepted_only=False, purpose="calibrate")
    run.store.create_same(run.name("datasets", f"{dataset.digest}.json"), dataset.to_bytes())
    tasks = {task.task_id: task for task in run.training_tasks()}
    shown = item_of(run)
    items: dict[str, Item] = {}
    grants: dict[str, set[str]] = {}
    for trajectory in trajectories(run.store, dataset):
        own = trajectory.ratchet
        if own.deliverable is not None and own.task_id in tasks:
            item = shown(tasks[own.task_id], own.deliverable)
            items.setdefault(item.item_id, item.model_copy(update={"group": own.policy or ""}))
            grants.setdefault(item.item_id, set()).add(own.grant_id)
    return Corpus(dataset, dict(sorted(items.items())), grants)


def standing(run: Run) -> list[Label]:
    """Each rater's last word on each item; a person's word takes the place of the labelling function's."""
    found = latest(labels_of(run).all())
    by_persons = {label.item_id for label in found if not label.simulated}
    simulated = section_of(run).labels == "simulated"
    return [label for label in found if not label.simulated or (simulated and label.item_id not in by_persons)]


def judge_labels(run: Run) -> Stage:
    """Choose the labels of this generation, once; label by the stated function what nobody has labelled, if asked to.

    A label that an earlier generation was calibrated on, or that a look at it used up, calibrates no later one.
    """

    def make() -> dict[str, Any]:
        found = corpus(run)
        spent = spent_before(run)
        if section_of(run).labels == "simulated":
            _simulate(run, found, spent)
        usable = [
            label
            for label in standing(run)
            if label.item_id in found.items and not (label.split == "calibration" and label.item_id in spent)
        ]
        anchors = sorted({label.item_id for label in usable if label.split == "anchor"})
        kept = set(anchors[: section_of(run).anchor_labels])
        chosen = [label for label in usable if label.split != "anchor" or label.item_id in kept]
        return {"dataset": found.dataset.digest, "labels": sorted(map(digest, chosen))}

    data, reused = run.once_json(place(run, "labels.json"), make)
    chosen = chosen_labels(run)
    rows = [
        {
            "split": split,
            "items": len({label.item_id for label in chosen if label.split == split}),
            "simulated": sum(label.simulated for label in chosen if label.split == split),
            "by persons": sum(not label.simulated for label in chosen if label.split == split),
        }
        for split, _ in SHARES
    ]
    summary = ", ".join(f"{row['items']} {row['split']}" for row in rows) + f" items labelled{simulated_note(chosen)}"
    return stage("judge_labels", reused, summary, data, rows)


def chosen_labels(run: Run, split: LabelSplit | None = None, of: int | None = None) -> list[Label]:
    """The labels that a generation rests on."""
    chosen = set(json.loads(run.store.read(run.name(place(run, "labels.json", of=of))))["labels"])
    return [
        label for label in labels_of(run).all() if digest(label) in chosen and (split is None or label.split == split)
    ]


def judge_checkpoint(run: Run) -> Stage:
    """Fit the local judge to the tuning labels, once; a judge behind an endpoint has no checkpoint."""
    section = section_of(run)
    if section.endpoint is not None:
        what = digest(section.endpoint)
        return stage("judge_checkpoint", True, f"{section.endpoint.model} behind an endpoint", what)
    from ratchet.rewards.judges.fitting import fit_judge
    from ratchet.rewards.judges.hardening import hardened

    def make() -> dict[str, Any]:
        items, labels = corpus(run).items, chosen_labels(run, "tuning")
        if section.fit.hardened:
            items, labels = hardened(items, labels, rubric_of(run).categories, seed=run.manifest.seed)
        folder = run.home / "work" / run.manifest.run_id / "judge"
        shutil.rmtree(folder, ignore_errors=True)
        batches = -(-len({label.item_id for label in labels}) // section.fit.batch_size)
        with progress(f"judge of {section.rubric}", section.fit.epochs * batches) as tick:
            losses = fit_judge(
                rubric_of(run), items, labels, folder, section.fit, seed=run.manifest.seed, progress=tick
            )
        weights = run.store.publish_folder(folder, run.name(place(run, "checkpoint")))
        return {"weights": weights, "losses": losses}

    data, reused = run.once_json(place(run, "checkpoint.json"), make)
    rows = [{"epoch": number, "loss": loss} for number, loss in enumerate(data["losses"], start=1)]
    note = simulated_note(chosen_labels(run, "tuning"))
    return stage("judge_checkpoint", reused, f"fitted, last loss {data['losses'][-1]:.3f}{note}", data, rows)


def open_judge(run: Run, of: int | None = None) -> Judge:
    """The judge of a generation, the newest by default. Raises IntegrityError where its checkpoint was changed."""
    section, rubric = section_of(run), rubric_of(run)
    if section.endpoint is not None:
        from ratchet.rewards.judges.endpoint import EndpointJudge

        return EndpointJudge(rubric, section.endpoint)
    from ratchet.rewards.judges.local import LocalJudge

    weights = json.loads(run.store.read(run.name(place(run, "checkpoint.json", of=of))))["weights"]
    folder = verified(run.store, run.name(place(run, "checkpoint", of=of)), weights)
    return LocalJudge(rubric, folder, cost_per_call=run.manifest.prices.per_judge_call)


def open_calibration(run: Run, of: int | None = None) -> JudgeCalibration | None:
    """The calibration of a generation, the newest by default, as stored; None where there is none yet."""
    name = run.name(place(run, "calibration.json", of=of))
    return reopen_calibration(run.store.read(name), name) if run.store.exists(name) else None


def judge_calibration(run: Run) -> Stage:
    """Audit the judge's biases, hold it against the calibration labels, and judge the anchors, once a generation.

    Raises:
        RatchetError: it could not be calibrated, and counts. One that pays nothing stops no loop: the stage says why.
    """
    if run.manifest.reward.judge is None:
        return stage("judge_calibration", True, NONE, [])
    found = open_calibration(run)
    reused = found is not None
    if found is None:
        try:
            judge_labels(run)
            judge_checkpoint(run)
            found = _calibrated(run, open_judge(run), corpus(run).items)
        except RatchetError as error:
            if judge_counts(run.manifest.reward):
                raise
            why = f"the judge was not calibrated; weight 0, so nothing waits for it: {error}"
            return stage("judge_calibration", False, why, why, passed="False", weight=0.0)
    rows = [*companions(found), *audit_rows(run)]
    state = "calibrated" if found.passed else f"NOT calibrated: {'; '.join(found.failures)}"
    note = " (simulated labels)" if found.simulated else ""
    kappa = found.agreement.kappa
    told = str(kappa) if isinstance(kappa, NotComputable) else f"{kappa:.3f}"
    summary = f"kappa {told} on {found.agreement.n} labels{note}; {state}"
    weight = section_of(run).weight
    if not judge_counts(run.manifest.reward):
        summary += "; weight 0: shown, not paid"
    return stage(
        "judge_calibration", reused, summary, found.digest, rows,
        kappa=None if isinstance(kappa, NotComputable) else kappa, n=found.agreement.n, simulated=str(found.simulated),
        passed=str(found.passed), weight=weight, generation=generation(run),
    )  # fmt: skip


def companions(found: JudgeCalibration) -> list[dict[str, Any]]:
    """Kappa with both intervals, and every figure without which it misleads."""
    seen = found.agreement
    figures: dict[str, dict[str, Any]] = {
        "kappa": {"value": seen.kappa},
        "kappa, asymptotic interval": {"interval": seen.asymptotic},
        "kappa, bootstrap interval": {"interval": seen.bootstrap},
        "weighted kappa": {"value": seen.weighted_kappa},
        "alpha between experts": {"value": found.experts_alpha},
        "labels": {"value": seen.n},
        "prevalence": {"value": seen.prevalence},
        "agreement": {"value": seen.agreement},
        "true positive rate": {"value": seen.true_positive_rate},
        "true negative rate": {"value": seen.true_negative_rate},
        "invalid judgements": {"value": found.invalid},
        "cost in USD": {"value": found.cost_usd},
    }
    note = "simulated" if found.simulated else "experts"
    return [{"figure": name, **_plain(values), "labels": note} for name, values in figures.items()]


def audit_rows(run: Run) -> list[dict[str, Any]]:
    """What each bias audit of the newest generation says; of one that does not apply to the judge, why not."""
    name = run.name(place(run, "bias.json"))
    return [_audit_row(one) for one in bias.reopen_report(run.store.read(name), name).audits]


def spent_before(run: Run) -> set[str]:
    """Items that calibrated an earlier generation. What was too few to calibrate on is not spent."""
    spent: set[str] = set()
    for earlier in range(1, generation(run)):
        found = open_calibration(run, of=earlier)
        if found is not None and found.agreement.n >= found.rule.min_labels:
            spent |= {label.item_id for label in chosen_labels(run, "calibration", of=earlier)}
    return spent


def recalibrate(run: Run, reason: str) -> int:
    """Open the next generation, unless the newest one is not calibrated yet; `judge_calibration` then fills it."""
    newest = generation(run)
    if open_calibration(run) is None:
        return newest
    opened = {"reason": reason, "at": run.now().isoformat()}
    run.store.create(run.name(place(run, "opened.json", of=newest + 1)), canonical_json(opened).encode())
    return newest + 1


def simulated_note(labels: Sequence[Label]) -> str:
    """What has to stand beside everything made of labels, where a function made any of them."""
    return " (simulated)" if any(label.simulated for label in labels) else ""


def _calibrated(run: Run, judge: Judge, items: dict[str, Item]) -> JudgeCalibration:
    labels, memory = chosen_labels(run, "calibration"), memory_of(run)
    truth = {name: category for name, category in majority(latest(labels)).items() if name in items}
    works = [items[name] for name in truth]

    def audited() -> bytes:
        own = section_of(run).own_agents
        return bias.report(judge, bias.audits(judge, works, truth, own, memory=memory)).to_bytes()

    def made() -> bytes:
        report = bias.reopen_report(run.store.read(run.name(place(run, "bias.json"))), "bias.json")
        seed = run.manifest.seed
        return calibrate(
            judge, items, labels, section_of(run).drift, at=run.now(), bias=report, memory=memory, seed=seed
        ).to_bytes()

    anchors = [items[name] for name in majority(latest(chosen_labels(run, "anchor"))) if name in items]
    try:
        with progress(f"calibration of the judge on {len(works)} labels"):
            run.once(place(run, "bias.json"), audited)
            before = judge_all(judge, anchors)
            run.once_json(
                place(run, "anchors.json"),
                lambda: {item.item_id: one.category for item, one in zip(anchors, before, strict=True)},
            )
            name = place(run, "calibration.json")
            data, _ = run.once(name, made)
            return reopen_calibration(data, name)
    finally:
        memory.close()


def _simulate(run: Run, found: Corpus, spent: set[str]) -> None:
    """Label items by the environment's function, up to the number that the manifest asks for in each split."""
    section = section_of(run)
    label_of = _labelling(run).label_of
    labelled = {label.item_id: label.split for label in labels_of(run).all()}
    wanted = {
        "tuning": section.tuning_labels,
        "calibration": section.calibration_labels,
        "anchor": section.anchor_labels,
    }
    fresh = []
    for split, _ in SHARES:
        have = sum(one == split and name in found.items and name not in spent for name, one in labelled.items())
        open_ones = [item for name, item in found.items.items() if name not in labelled and split_of(name) == split]
        fresh += open_ones[: max(0, wanted[split] - have)]
    labels_of(run).add(label_of(item, at=run.now(), split=split_of(item.item_id)) for item in fresh)


def _labelling(run: Run) -> Any:
    """The environment's module of rubrics. Raises ManifestError where it has none."""
    name = run.manifest.environment.name
    try:
        return importlib.import_module(f"ratchet.environments.{name}.labelling")
    except ModuleNotFoundError:
        raise ManifestError(
            "reward.judge", seen=name, rule="the environment states no rubric", remedy="leave the judge out"
        ) from None


def _audit_row(audit: bias.BiasAudit) -> dict[str, Any]:
    found = audit.model_dump(mode="json", include={"kind", "n", "rate", "interval", "verdict"})
    asked = audit.verdict != "not_applicable"
    return {
        "figure": f"bias: {found['kind']}",
        "value": found["rate"] if asked else f"not applicable: {found['rate']['not_computable']}",
        "interval": found["interval"] if asked else None,
        "labels": f"{found['verdict']}, {found['n']} items" if asked else None,
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.model_dump(mode="json") if hasattr(value, "model_dump") else value for name, value in values.items()
    }
