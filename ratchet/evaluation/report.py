"""The report of an experiment: one JSON object, and the same figures as tables for a terminal.

Everything that shows figures to a person (command line, page, tracking server) reads this object, so that all of them
show the same ones. What cannot be computed is `{"not_computable": reason}` in it, and the reason in every table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ratchet.contracts.canonical import plain
from ratchet.contracts.score import NotComputable
from ratchet.evaluation import format as show
from ratchet.evaluation.compare import Comparison, Estimate, PairedDifference, Segment
from ratchet.evaluation.economics import INCUMBENT
from ratchet.evaluation.paired import paired_adjusted
from ratchet.evaluation.scorecard import Scorecard

if TYPE_CHECKING:
    from rich.table import Table

Report = dict[str, Any]
MARKS = {True: "passed", False: "FAILED", None: "NOT COMPUTABLE"}


def report(
    *,
    experiment: str,
    manifest_digest: str,
    split_lock: Mapping[str, Any],
    scorecards: Sequence[Scorecard],
    comparisons: Sequence[Comparison] = (),
    decision: Mapping[str, Any] | None = None,
    lineage: Mapping[str, Any] | None = None,
    audits: Mapping[str, Any] | None = None,
    further: Mapping[str, Any] | None = None,
) -> Report:
    """Build the report.

    Args:
        experiment: name.
        manifest_digest: digest of the manifest.
        split_lock: `digest` and the sizes `train`, `validation` and `heldout`.
        scorecards: the incumbent's first, then one per candidate.
        comparisons: further pairs, such as one candidate over another.
        decision: the gate's (`Decision.summary()`), or None where there is none yet.
        lineage: digests from the version down to the grants, as nested mappings and lists.
        audits: the exploitation audits (`audits.audits_entry`), or None where there are none.
        further: what else there is to show, by key: `judge` (`judged.judge_entry`), `openings` of the held-out tasks,
            `prices`, `logs`, the candidates that were `left_out`.

    Returns:
        Plain JSON.
    """
    undecided = NotComputable(reason="the gate has not decided yet")
    body: Report = {
        "experiment": experiment,
        "manifest_digest": manifest_digest,
        "split_lock": dict(split_lock),
        "policies": [policy_entry(card) for card in scorecards],
        "comparisons": [_comparison(comparison) for comparison in comparisons],
        "decision": dict(decision) if decision else undecided,
        "lineage": dict(lineage or {}),
    }
    if audits is not None:
        body["audits"] = dict(audits)
    body |= further or {}
    return {key: plain(value) for key, value in body.items()}


def policy_entry(card: Scorecard) -> dict[str, Any]:
    """What the report holds of one policy, as plain JSON."""
    cost = card.cost
    return plain(
        {
            "name": card.name,
            "method": card.method,
            "digest": card.policy_digest,
            "scorecard_digest": card.digest,
            "rows_digest": card.rows_digest,
            "n_tasks": card.n_tasks,
            "n_repos": card.n_repos,
            "seeds": len(card.seeds),
            "accepted_tasks": card.accepted_tasks,
            "acceptance": _estimate(card.acceptance),
            "mean_of_seeds": _estimate(card.mean_of_seeds),
            "pass_hat": list(card.pass_hat),
            "paired_difference": _paired(card.comparison.paired_difference) if card.comparison else INCUMBENT,
            "segments": [_segment(segment) for segment in card.segments],
            "tool_call_precision": card.tool_call_precision,
            "reference_precision": card.reference_precision,
            "violations": card.violations,
            "violations_by_rule": card.violations_by_rule,
            "exploit_rate": card.exploit_rate,
            "exploits_by_kind": card.exploits_by_kind,
            "latency_s": card.latency_s,
            "tokens_per_run": card.tokens_per_run,
            "calls_per_run": card.calls_per_run,
            "invalid_share": card.invalid_share,
            "void": card.void,
            "cost": {
                "currency": cost.currency,
                "window_total": cost.window_total,
                "accepted_runs": cost.accepted_runs,
                "variable_per_accepted": cost.variable_per_accepted,
                "floor_per_accepted": cost.floor_per_accepted,
                "training": cost.training,
                "training_cumulative": cost.training_cumulative,
                "training_beyond_incumbent": cost.training_beyond_incumbent,
                "loaded": cost.loaded,
                "amortised": cost.amortised,
                "horizon_runs": cost.horizon_runs,
                "break_even": cost.break_even.value,
                "break_even_interval": {"low": cost.break_even.low, "high": cost.break_even.high},
            },
        }
    )


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "method": estimate.method}


def _paired(paired: PairedDifference) -> dict[str, Any]:
    names = ("value", "low", "high", "p", "minimum_effect", "p_above_minimum", "detectable_effect")
    return {name: getattr(paired, name) for name in names}


def _segment(segment: Segment) -> dict[str, Any]:
    names = (
        "name",
        "n",
        "accepted",
        "difference",
        "mean_difference",
        "regressed",
        "gained",
        "p",
        "p_holm",
        "detectable_effect",
    )
    found = {name: getattr(segment, name) for name in names}
    known = isinstance(segment.difference, float) and segment.regressed is not None and segment.gained is not None
    interval = paired_adjusted(segment.regressed or 0, segment.gained or 0, segment.n) if known else None
    return found | {"low": interval.low if interval else None, "high": interval.high if interval else None}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return plain(
        {
            "candidate": comparison.candidate,
            "reference": comparison.reference,
            "clusters": comparison.clusters,
            "paired_difference": _paired(comparison.paired_difference),
            "majority_difference": _estimate(comparison.majority_difference),
            "regressed": comparison.regressed,
            "gained": comparison.gained,
            "mcnemar_p": comparison.mcnemar_p,
        }
    )


def _money(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda policy: show.money(policy["cost"][key], policy["cost"]["currency"])


def _precision(policy: Mapping[str, Any]) -> str:
    """Share of calls that succeed; with the share that matches, where tasks carry reference calls."""
    matched = NotComputable.parse(policy.get("reference_precision"))
    own = show.percent(policy["tool_call_precision"])
    return f"{own}; {show.percent(matched)} match a reference call" if isinstance(matched, float | int) else own


def _difference(policy: Mapping[str, Any]) -> str:
    return show.points_interval(policy["paired_difference"])


def _p(policy: Mapping[str, Any]) -> str:
    paired = policy["paired_difference"]
    return show.p_value(paired.get("p", paired))


FIGURES: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("method", lambda policy: str(policy["method"])),
    ("accepted tasks", lambda policy: f"{policy['accepted_tasks']} of {policy['n_tasks']} x {policy['seeds']} seeds"),
    ("acceptance (majority)", lambda policy: show.percent_interval(policy["acceptance"])),
    ("mean of seeds", lambda policy: show.percent_interval(policy["mean_of_seeds"])),
    ("over the incumbent, paired", _difference),
    ("p", _p),
    ("pass^k", lambda policy: " / ".join(map(show.percent, policy["pass_hat"]))),
    ("tool-call precision", _precision),
    ("policy violations", lambda policy: show.whole(policy["violations"])),
    ("exploit rate", lambda policy: show.percent(policy["exploit_rate"])),
    ("latency p50", lambda policy: show.seconds(policy["latency_s"]["p50"])),
    ("latency p95", lambda policy: show.seconds(policy["latency_s"]["p95"])),
    ("tokens per run", lambda policy: show.figure(policy["tokens_per_run"])),
    ("calls per run", lambda policy: show.figure(policy["calls_per_run"])),
    ("invalid tasks", lambda policy: show.percent(policy["invalid_share"])),
    ("variable cost per accepted run", _money("variable_per_accepted")),
    ("training, cumulative", _money("training_cumulative")),
    ("loaded cost per accepted run", _money("loaded")),
    ("amortised cost per accepted run", _money("amortised")),
    ("break-even, accepted runs", lambda policy: show.whole(policy["cost"]["break_even"])),
)
"""What is shown of a policy, with the one way it reads."""
HEADLINE = (
    "accepted tasks",
    "acceptance (majority)",
    "over the incumbent, paired",
    "policy violations",
    "exploit rate",
    "variable cost per accepted run",
)
"""The figures that are read first, where there is room for few."""


def headline(policies: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A row per policy with the figures that are read first."""
    shown = [(label, figure) for label, figure in FIGURES if label in HEADLINE]
    return [{"policy": one["name"], **{label: figure(one) for label, figure in shown}} for one in policies]


def figure_rows(policies: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A row per figure, the policies side by side."""
    return [{"figure": label, **{one["name"]: figure(one) for one in policies}} for label, figure in FIGURES]


def policy_table(body: Report) -> Table:
    """Lay the policies side by side, a figure a line, so that the table fits a terminal."""
    from rich.table import Table

    table = Table(title=f"{body['experiment']}: policies on the held-out tasks, 95 % intervals", title_justify="left")
    table.add_column("", style="bold", no_wrap=False)
    for policy in body["policies"]:
        table.add_column(policy["name"], justify="right")
    for label, figure in FIGURES:
        table.add_row(label, *(figure(policy) for policy in body["policies"]))
    return table


def comparison_table(body: Report) -> Table:
    """Show the further pairs of policies."""
    from rich.table import Table

    table = Table(title="Pairs of policies, clustered by repo, 95 % intervals", title_justify="left")
    for heading in PAIRS:
        table.add_column(heading, justify="left" if heading == PAIRS[0] else "right")
    for pair in body["comparisons"]:
        table.add_row(*pair_cells(pair))
    return table


def left_out_lines(body: Mapping[str, Any]) -> list[str]:
    """A line for every candidate of the manifest that was not made, with the reason and what to do about it."""
    return [f"{one['name']} ({one['method']}): {one['reason']}" for one in body.get("left_out", ())]


PAIRS = ("pair", "mean of seeds", "p", "majority", "lost / won", "McNemar p")
"""Headings of what is shown of a pair of policies."""


def pair_cells(pair: Mapping[str, Any]) -> tuple[str, ...]:
    """A pair of policies under the headings of `PAIRS`."""
    return (
        f"{pair['candidate']} over {pair['reference']}",
        show.points_interval(pair["paired_difference"]),
        show.p_value(pair["paired_difference"]["p"]),
        show.points_interval(pair["majority_difference"]),
        f"{pair['regressed']} / {pair['gained']}",
        show.p_value(pair["mcnemar_p"]),
    )


def decision_table(body: Report) -> Table:
    """Show the decision with every rule."""
    from rich.markup import escape
    from rich.table import Table

    decision = body["decision"]
    undecided = NotComputable.parse(decision)
    table = Table("rule", "outcome", "why", title_justify="left")
    if isinstance(undecided, NotComputable):
        table.title = "No decision"
        table.add_row("–", "–", undecided.reason)
        return table
    table.title = f"Decision on {decision['candidate']}: {decision['state'].upper()}"
    for rule in decision["rules"]:
        style = "green" if rule["passed"] else "yellow" if rule["on_failure"] == "review" else "red"
        table.add_row(rule["name"], f"[{style}]{MARKS[rule['passed']]}[/]", escape(rule["reason"]))
    return table
