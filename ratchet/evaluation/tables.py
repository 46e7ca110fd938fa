"""The tables of the release page: policies, pairs of them, segments, and everything that was paid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ratchet.evaluation import format as show
from ratchet.evaluation.language import Language
from ratchet.evaluation.markup import Html, folded, name, table
from ratchet.evaluation.report import FIGURES, PAIRS, Report, pair_cells


def policies(body: Report, language: Language) -> str:
    """Every figure of every policy, side by side."""
    heads = ["", *(name(one["name"]) for one in body["policies"])]
    rows = [
        # A method is called what the manifest calls it.
        [label, *(name(figure(one)) if label == "method" else figure(one) for one in body["policies"])]
        for label, figure in FIGURES
    ]
    return table(language, "Policies on the held-out tasks", heads, rows)


def left_out(body: Report, language: Language) -> str:
    """Candidates of the manifest that were not made: why, and what to do about it."""
    rows = [
        [name(one["name"]), name(one["method"]), name(one["start"]), one["seen"], one["rule"], one["remedy"]]
        for one in body.get("left_out", ())
    ]
    heads = ("candidate", "method", "start", "seen", "rule", "remedy")
    label = "Candidates that were left out"
    return f"<h3>{language.html(label)}</h3>" + table(language, label, heads, rows, words=range(6)) if rows else ""


def pairs(body: Report, language: Language) -> str:
    """Further pairs of policies, such as a candidate over the one it started from."""
    if not body["comparisons"]:
        return ""
    rows = [list(pair_cells(pair)) for pair in body["comparisons"]]
    return f"<h3>{language.html('Pairs of policies')}</h3>" + table(language, "Pairs of policies", PAIRS, rows)


def segments(body: Report, decided: str | None, language: Language) -> str:
    """Every policy in every segment, with what a segment of its size would show; the decided candidate's are open."""
    first = [one for one in body["policies"][1:] if decided in (one["name"], None)]
    others = [one for one in body["policies"][1:] if one not in first]
    return _segments(first, "Segments", language) + folded(
        "Other policies by segment", _segments(others, "Other policies by segment", language), language
    )


def _segments(shown: Sequence[Mapping[str, Any]], label: str, language: Language) -> str:
    heads = ("segment", "policy", "accepted", "difference", "p (Holm)", "detectable effect")
    rows = [
        [
            name(one["name"]),
            name(policy["name"]),
            f"{one['accepted']} of {one['n']}",
            show.points_interval({"low": None, "high": None, **one, "value": one["difference"]}),
            show.p_value(one["p_holm"]),
            show.size(one["detectable_effect"]),
        ]
        for policy in shown
        for one in policy["segments"]
    ]
    return table(language, label, heads, rows, words={1}) if rows else ""


FLOOR = "at least, where nothing was accepted"
COSTS: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("cost of all runs of the window", lambda cost: show.money(cost.get("window_total"), cost["currency"])),
    ("accepted runs of the window", lambda cost: show.whole(cost.get("accepted_runs"))),
    ("variable cost per accepted run", lambda cost: show.money(cost["variable_per_accepted"], cost["currency"])),
    (FLOOR, lambda cost: show.money(cost["floor_per_accepted"], cost["currency"])),
    ("training, own stage", lambda cost: show.money(cost["training"], cost["currency"])),
    ("training, cumulative", lambda cost: show.money(cost["training_cumulative"], cost["currency"])),
    (
        "training, beyond the incumbent",
        lambda cost: show.money(cost.get("training_beyond_incumbent"), cost["currency"]),
    ),
    ("loaded cost per accepted run", lambda cost: show.money(cost["loaded"], cost["currency"])),
    ("amortised cost per accepted run", lambda cost: show.money(cost["amortised"], cost["currency"])),
    ("over a horizon of accepted runs", lambda cost: show.whole(cost["horizon_runs"])),
    ("break-even, accepted runs", lambda cost: show.whole(cost["break_even"])),
    ("break-even, lower bound", lambda cost: show.whole(cost["break_even_interval"]["low"])),
    ("break-even, upper bound", lambda cost: show.whole(cost["break_even_interval"]["high"])),
)
"""Everything that is known of a policy's cost, with the one way it reads."""
PRICES = {
    "per_million_input_tokens": "a million tokens read",
    "per_million_output_tokens": "a million tokens sampled",
    "per_sandbox_s": "a second of the sandbox",
    "per_verifier_s": "a second of verification",
    "per_judge_call": "a judged item",
    "per_trainer_hour": "an hour of the training machine",
}
"""The units of the price list, in words."""


def costs(body: Report, language: Language) -> str:
    """What every policy cost, part by part, and the price list behind it."""
    heads = ["", *(name(one["name"]) for one in body["policies"])]
    known = any(isinstance(one["cost"]["floor_per_accepted"], int | float) for one in body["policies"])
    rows = [
        [label, *(figure(one["cost"]) for one in body["policies"])]
        for label, figure in COSTS
        if known or label != FLOOR
    ]
    shown = table(language, "Complete cost", heads, rows)
    prices = body.get("prices")
    if not prices:
        return shown
    listed = [
        [PRICES.get(unit, Html(unit)), show.money(price, prices["currency"])]
        for unit, price in prices.items()
        if unit != "currency"
    ]
    return f"{shown}<h3>{language.html('Price list')}</h3>" + table(language, "Price list", ("unit", "price"), listed)
