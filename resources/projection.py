"""An experiment as MLflow shows it: a card per policy with figures, curves and report, and versions from the ledger."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.contracts.manifest import Manifest
from ratchet.contracts.policy import Policy
from ratchet.contracts.score import NotComputable, Quantity
from ratchet.evaluation import format as show
from ratchet.evaluation.curves import learning_curves
from ratchet.evaluation.report import headline, left_out_lines
from ratchet.loop import deciding, judging
from ratchet.loop.context import Run
from ratchet.release.ledger import Ledger
from ratchet.release.records import Incident
from resources.mlflow_models import VERSION, PolicyCard, model_name
from resources.reconciler import STATE
from resources.registry import Registry

UI = "http://127.0.0.1:5000"
"""MLflow's address where `ratchet ui` starts it."""
FIGURES = (
    "tool_call_precision", "reference_precision", "violations", "exploit_rate", "invalid_share", "tokens_per_run",
    "calls_per_run",
)  # fmt: skip
COSTS = (
    "window_total", "variable_per_accepted", "floor_per_accepted", "training", "training_cumulative", "loaded",
    "amortised", "break_even",
)  # fmt: skip
_UNUSUAL = re.compile(r"[^\w\-. :/]")
"""What MLflow takes in no name of a metric."""


class Shown(NamedTuple):
    """What was shown of an experiment, and where."""

    report: dict[str, Any]
    """The report object."""
    page: Path
    """The release report, an HTML file."""
    model: str
    """Name of the registered model."""
    link: str
    """Where a browser finds it: at the tracking server, or where `ratchet ui` shows the home's database."""
    incidents: list[Incident]
    """What was changed by hand in MLflow, ever, as the ledger keeps it."""


def project_run(run: Run) -> Shown:
    """Write the report page, and bring MLflow up to what the release ledger says of this experiment."""
    manifest, report = run.manifest, deciding.report_of(run)
    page = run.home / "reports" / f"{manifest.run_id}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    whole = page.with_suffix(".new")
    whole.write_text(deciding.report_html(run), encoding="utf-8")
    os.replace(whole, page)
    policies = {policy.name: policy for policy in judging.policies(run)}
    cards = [card(manifest, policies[one["name"]], one, page, report) for one in report["policies"]]
    registry, ledger = Registry.of(run.home), Ledger.of(run.home)
    left_out = {one["name"]: f"Left out: {one['reason']}." for one in report["left_out"]}
    registry.project(ledger, manifest.tenant, manifest.experiment, cards, left_out)
    incidents = ledger.incidents(manifest.tenant, manifest.experiment)
    name, uri = model_name(manifest.tenant, manifest.experiment), registry.models.uri
    link = f"{uri if uri.startswith('http') else UI}/#/models/{name}"
    return Shown(report, page, name, link, incidents)


def card(
    manifest: Manifest, policy: Policy, figures: Mapping[str, Any], page: Path, report: Mapping[str, Any]
) -> PolicyCard:
    """The card of one policy.

    Args:
        manifest: of the experiment.
        policy: the policy.
        figures: its entry in the report.
        page: the report page.
        report: the whole report.
    """
    section = next((one for one in manifest.methods if one.name == policy.name), None)
    params = {"method": policy.method, "experiment": manifest.run_id, "seed": str(manifest.seed)}
    if section is not None:
        params |= {"start": section.start, **{key: str(value) for key, value in section.settings.items()}}
    return PolicyCard(
        policy=policy,
        manifest_digest=manifest.digest,
        metrics=dict(metrics(figures)) | regression(policy),
        params=params,
        curves=curves(policy.training.get("curve", [])),
        report=page,
        description=description(manifest, policy, figures, report),
    )


def description(manifest: Manifest, policy: Policy, figures: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """What a reviewer reads first of a policy, as markdown: what it is, its figures, the decision, where to look.

    Its state is left to the tags: it moves without a new description.
    """
    section = next((one for one in manifest.methods if one.name == policy.name), None)
    origin = (
        f"made by `{policy.method}` from `{section.start}`"
        if section
        else "the incumbent that candidates must beat"
        if policy.name == report["policies"][0]["name"]
        else "the base checkpoint, shown for reference"
    )
    decision = report["decision"]
    if section is None:
        verdict = "It is not released by this experiment."
    elif decision["candidate"] != policy.name:
        verdict = f"Not decided: validation chose **{decision['candidate']}** as the candidate."
    else:
        reasons = "".join(f"\n- {reason}" for reason in decision["reasons"]) or "\n- every rule passed"
        when = show.moment(decision["decided_at"])
        verdict = (
            f"Decision of the gate: **{decision['state']}**, {when}, asked for by {decision['decided_by']}{reasons}"
        )
    # A list: MLflow sets tables without any space between their cells.
    words = "\n".join(f"- {label}: {value}" for label, value in headline([figures])[0].items() if label != "policy")
    where = (
        "All figures, rules and the lineage: `report.html` among the artifacts of the source run. "
        "State and who moved it: the tags `ratchet.state`, `ratchet.by`, `ratchet.reason`, and `ratchet history`."
    )
    # Without marks: lists of versions show its first words as they stand.
    about = f"{policy.name}, {origin}, in experiment `{manifest.run_id}` (seed {manifest.seed})."
    found = policy.training.get("regression")
    lost = [] if found is None else [
        f"Regression on {found['compared']} validation tasks against what it started from: lost {len(found['lost'])} "
        f"({', '.join(found['lost']) or 'none'}), gained {len(found['gained'])}, held {found['held']}."
    ]  # fmt: skip
    missing = [f"Left out of the comparison: {line}." for line in left_out_lines(report)]
    return "\n\n".join((about, verdict, f"On the held-out tasks:\n{words}", *lost, *missing, where))


def metrics(figures: Mapping[str, Any]) -> Iterator[tuple[str, Quantity]]:
    """The figures of one policy of a report by metric name; what cannot be computed keeps its reason."""
    yield "accepted_tasks", _quantity(figures["accepted_tasks"])
    for name in ("acceptance", "mean_of_seeds", "paired_difference"):
        found = NotComputable.parse(figures[name])
        if isinstance(found, NotComputable):
            yield name, found
        else:
            yield name, _quantity(found["value"])
            yield from ((f"{name}_{part}", _quantity(found[part])) for part in ("low", "high", "p") if part in found)
    yield from ((f"pass_hat_{k}", _quantity(value)) for k, value in enumerate(figures["pass_hat"], start=1))
    yield from ((name, _quantity(figures[name])) for name in FIGURES)
    yield from ((f"latency_{part}_s", _quantity(figures["latency_s"][part])) for part in ("p50", "p95"))
    yield from ((f"cost_{part}", _quantity(figures["cost"][part])) for part in COSTS)
    for one in figures["segments"]:
        yield _UNUSUAL.sub("_", f"segment_{one['name']}_accepted"), float(one["accepted"])
        yield _UNUSUAL.sub("_", f"segment_{one['name']}_difference"), _quantity(one["difference"])


def regression(policy: Policy) -> dict[str, Quantity]:
    """What the kept checkpoint lost and gained on validation against the policy it started from; none if untrained."""
    report = policy.training.get("regression")
    if report is None:
        return {}
    return {
        "validation_start": float(report["start"]),
        "validation_lost": float(len(report["lost"])),
        "validation_gained": float(len(report["gained"])),
        "validation_held": float(report["held"]),
    }


def curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """The learning curves as (step, value), by the name of their metric."""
    return {f"curve_{name}": list(points) for name, points in learning_curves(rows).items()}


def registry_differences(run: Run) -> list[dict[str, str]]:
    """Where MLflow differs from the release ledger in this experiment's line: what, seen, expected. Repairs nothing."""
    tenant, experiment = run.manifest.tenant, run.manifest.experiment
    ledger, registry = Ledger.of(run.home), Registry.of(run.home)
    name = model_name(tenant, experiment)
    items = list(registry.models.versions(name))
    numbers = {item.tags.get(VERSION, ""): str(item.version) for item in items}
    rows = []
    for identity, (version, state) in ledger.versions(tenant, experiment).items():
        seen = next((item.tags.get(STATE, "missing") for item in items if item.tags.get(VERSION) == identity), "absent")
        rows.append({"what": f"state of {version.label}", "seen": seen, "expected": str(state)})
    if not rows:
        return []
    aliases = {key: str(value) for key, value in registry.models.client.get_registered_model(name).aliases.items()}
    slots = {key: numbers.get(held.id, "absent") for key, held in ledger.current(tenant, experiment).by_alias().items()}
    for alias in sorted(aliases.keys() | slots.keys()):
        seen, expected = aliases.get(alias, "not set"), slots.get(alias, "not set")
        rows.append({"what": f"alias {alias} of {name}", "seen": seen, "expected": expected})
    return [row for row in rows if row["seen"] != row["expected"]]


def _quantity(value: Any) -> Quantity:
    found = NotComputable.parse(value)
    if isinstance(found, NotComputable):
        return found
    return NotComputable(reason="the report has no figure") if found is None else float(found)
