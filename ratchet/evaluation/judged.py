"""The judge's calibration as the report holds it and as the page shows it; made from simulated labels, it says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.contracts.canonical import plain
from ratchet.contracts.score import NotComputable
from ratchet.evaluation import format as show
from ratchet.evaluation.language import Language
from ratchet.evaluation.markup import code, figure, listed, name, simulated, table, tag
from ratchet.evaluation.svg import Mark, Whisker, whiskers
from ratchet.rewards.calibration.calibrate import JudgeCalibration
from ratchet.rewards.judges.bias import BiasReport


def judge_entry(calibration: JudgeCalibration, bias: BiasReport, weight: float) -> dict[str, Any]:
    """What the report holds of the judge, as plain JSON.

    Args:
        calibration: how it agrees with the labels.
        bias: what the audits of its biases say.
        weight: what its grade weighs in the reward; 0 is shown and not paid.
    """
    seen = calibration.agreement
    return plain(
        {
            "rubric": calibration.rubric,
            "rubric_version": calibration.rubric_version,
            "judge_digest": calibration.judge_digest,
            "digest": calibration.digest,
            "simulated": calibration.simulated,
            "weight": weight,
            "passed": calibration.passed,
            "failures": calibration.failures,
            "at": calibration.at,
            "floor": calibration.rule.floor,
            "min_labels": calibration.rule.min_labels,
            "n": seen.n,
            "raters": calibration.raters,
            "kappa": seen.kappa,
            "asymptotic": seen.asymptotic,
            "bootstrap": seen.bootstrap,
            "weighted_kappa": seen.weighted_kappa,
            "experts_alpha": calibration.experts_alpha,
            "prevalence": seen.prevalence,
            "agreement": seen.agreement,
            "true_positive_rate": seen.true_positive_rate,
            "true_negative_rate": seen.true_negative_rate,
            "invalid": calibration.invalid,
            "cost_usd": calibration.cost_usd,
            "bias": [
                one.model_dump(mode="json", include={"kind", "n", "rate", "interval", "limit", "verdict"})
                for one in bias.audits
            ],
        }
    )


def judge_page(entry: Mapping[str, Any] | None, language: Language) -> str:
    """The judge on the page; nothing where the report has none."""
    if entry is None:
        return ""
    say = language.html
    missing = NotComputable.parse(entry)
    if isinstance(missing, NotComputable):
        return f"<p>{say(missing.reason)}</p>"
    mark = f" {simulated(language)}" if entry["simulated"] else ""
    state = tag("calibrated", "ok", language) if entry["passed"] else tag("NOT calibrated", "no", language)
    paid = f"weight {entry['weight']:g}" if entry["weight"] else "weight 0: shown, not paid"
    labels = f"{entry['n']} simulated labels" if entry["simulated"] else f"{entry['n']} labels by persons"
    head = (
        f"<p>{name(entry['rubric'])} {name(entry['rubric_version'])}, {code(entry['judge_digest'], 12)} · {state} · "
        f"{say(paid)} · {say(labels)}{mark}</p>"
    )
    figures = [
        ("kappa", show.figure(entry["kappa"])),
        ("weighted kappa", show.figure(entry["weighted_kappa"])),
        ("alpha between experts", show.figure(entry["experts_alpha"])),
        ("agreement", show.percent(entry["agreement"])),
        ("prevalence", show.percent(entry["prevalence"])),
        ("true positive rate", show.percent(entry["true_positive_rate"])),
        ("true negative rate", show.percent(entry["true_negative_rate"])),
        ("invalid judgements", show.whole(entry["invalid"])),
        ("cost", show.money(entry["cost_usd"], "USD")),
    ]
    biases = [[f"bias: {one['kind'].replace('_', ' ')}", _bias(one)] for one in entry["bias"]]
    rows = [*map(list, figures), *biases]
    return (
        head
        + listed(map(say, entry["failures"]))
        + f'<div class="plots">{figure("Agreement of the judge with the labels", _plot(entry, language), language)}'
        + f"<div>{table(language, 'Calibration of the judge', ('figure', 'value'), rows)}</div></div>"
    )


def _bias(audit: Mapping[str, Any]) -> str:
    verdict, interval = audit["verdict"].replace("_", " "), audit["interval"]
    if not isinstance(audit["rate"], float):
        return f"{verdict}: {show.percent(audit['rate'])}"
    bounds = {bound: interval.get(bound) for bound in ("low", "high")}
    return f"{verdict}: {show.percent_interval({'value': audit['rate'], **bounds})} of {audit['n']} items"


def _plot(entry: Mapping[str, Any], language: Language) -> str:
    items = []
    for label, interval in (("kappa, asymptotic interval", "asymptotic"), ("kappa, bootstrap interval", "bootstrap")):
        bounds = entry[interval]
        value = entry["kappa"] if isinstance(entry["kappa"], float) else None
        known = value is not None and "low" in bounds
        low, high = (bounds["low"], bounds["high"]) if known else (None, None)
        words = f"{entry['kappa']:.3f} [{low:.3f}, {high:.3f}]" if known else show.figure(entry["kappa"])
        items.append(Whisker(language.say(label), value, low, high, language.say(words), 1))
    return whiskers(
        language.say("Agreement of the judge with the labels, with 95 % intervals"),
        items,
        lambda x: language.say(f"{x:.2g}"),
        mark=Mark(entry["floor"], language.say(f"floor {entry['floor']:g}")),
    )
