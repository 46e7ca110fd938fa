"""The report as CSV: one figure a line, with its bounds and unit, for whoever calculates on.

A number stands as a number, in full precision. What cannot be computed stands as its reason, in the very cell where the
number would stand, so that no sum can take it for 0. In English the file is CSV as programs read it; in Spanish words
are Spanish, decimals have a comma, cells are parted by `;` and the file starts with a byte order mark, which is what a
spreadsheet with Spanish settings expects.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ratchet.contracts.score import NotComputable
from ratchet.evaluation.language import ENGLISH, Language
from ratchet.evaluation.report import MARKS, Report

COLUMNS = ("policy", "part", "name", "figure", "value", "lower bound", "upper bound", "unit")
BOM = "\ufeff"
_ACTIVE = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take a text for a formula."""


class Line(NamedTuple):
    """One figure: of a whole policy, or of a named part of it."""

    policy: str
    part: str
    name: str
    figure: str
    value: Any
    low: Any = None
    high: Any = None
    unit: str = ""


def to_csv(body: Report, language: Language = ENGLISH) -> str:
    """Write every figure of every policy, every segment and every rule of the decision.

    Args:
        body: what `report` returned.
        language: of headings, labels and words; names of policies, segments and rules broken stay as they are.

    Returns:
        The content of the file.
    """
    sink = io.StringIO()
    spanish = language.code != ENGLISH.code
    writer = csv.writer(sink, delimiter=";" if spanish else ",", lineterminator="\n")
    writer.writerow([language.say(column) for column in COLUMNS])
    for line in lines(body):
        name = language.say(line.name) if line.part == "decision" else line.name
        words = [_inert(line.policy), language.say(line.part), _inert(name), language.say(line.figure)]
        figures = [_cell(value, language) for value in (line.value, line.low, line.high)]
        writer.writerow([*words, *figures, language.say(line.unit) if line.unit in UNITS else line.unit])
    return (BOM if spanish else "") + sink.getvalue()


def lines(body: Report) -> Iterator[Line]:
    """The figures of a report, in a fixed order: policy by policy, then the decision."""
    for policy in body["policies"]:
        yield from _policy(policy["name"], policy)
        for segment in policy["segments"]:
            yield from _segment(policy["name"], segment)
    for one in body.get("left_out", ()):
        yield Line(one["name"], "left out", "", "seen", one["seen"])
        yield Line(one["name"], "left out", "", "rule", one["rule"])
    decision = NotComputable.parse(body["decision"])
    if isinstance(decision, NotComputable):
        yield Line("", "decision", "", "outcome", decision)
        return
    candidate = decision["candidate"]
    yield Line(candidate, "decision", "", "outcome", decision["state"])
    for rule in decision["rules"]:
        name = rule["name"].replace("_", " ")
        yield Line(candidate, "decision", name, "outcome", MARKS[rule["passed"]])
        yield Line(candidate, "decision", name, "seen", rule["figure"])
        yield Line(candidate, "decision", name, "held against", rule["threshold"])


def _policy(policy: str, one: Mapping[str, Any]) -> Iterator[Line]:
    def whole(figure: str, value: Any, unit: str = "", low: Any = None, high: Any = None) -> Line:
        return Line(policy, "policy", "", figure, value, low, high, unit)

    def named(part: str, name: Any, figure: str, value: Any, unit: str = "") -> Line:
        return Line(policy, part, str(name), figure, value, unit=unit)

    def estimate(figure: str, found: Any) -> Line:
        if isinstance(NotComputable.parse(found), NotComputable):
            return whole(figure, found, "share", found, found)
        return whole(figure, found["value"], "share", found["low"], found["high"])

    yield whole("tasks", one["n_tasks"])
    yield whole("seeds", one["seeds"])
    yield whole("accepted tasks", one["accepted_tasks"])
    yield estimate("acceptance (majority)", one["acceptance"])
    yield estimate("mean of seeds", one["mean_of_seeds"])
    yield from (named("pass^k", k, "pass^k", value, "share") for k, value in enumerate(one["pass_hat"], start=1))
    paired = one["paired_difference"]
    yield estimate("over the incumbent, paired", paired)
    yield whole("p", paired.get("p", paired))
    yield whole("tool-call precision", one["tool_call_precision"], "share")
    yield whole("calls that match a reference call", one["reference_precision"], "share")
    yield whole("policy violations", one["violations"])
    for rule, count in one["violations_by_rule"].items():
        yield named("policy violations", rule, "policy violations", count)
    yield whole("exploit rate", one["exploit_rate"], "share")
    for kind, count in one["exploits_by_kind"].items():
        yield named("kind of exploit", kind, "episodes", count)
    yield whole("latency p50", one["latency_s"]["p50"], "s")
    yield whole("latency p95", one["latency_s"]["p95"], "s")
    yield whole("tokens per run", one["tokens_per_run"])
    yield whole("calls per run", one["calls_per_run"])
    yield whole("invalid tasks", one["invalid_share"], "share")
    cost = one["cost"]
    for figure, key in COSTS.items():
        yield whole(figure, cost[key], cost["currency"])
    yield whole("accepted runs of the window", cost["accepted_runs"])
    bounds = cost["break_even_interval"]
    yield whole("break-even, accepted runs", cost["break_even"], "", bounds["low"], bounds["high"])


def _segment(policy: str, one: Mapping[str, Any]) -> Iterator[Line]:
    def line(figure: str, value: Any, unit: str = "", low: Any = None, high: Any = None) -> Line:
        return Line(policy, "segment", one["name"], figure, value, low, high, unit)

    yield line("tasks", one["n"])
    yield line("accepted", one["accepted"])
    yield line("difference", one["difference"], "share", one["low"], one["high"])
    yield line("mean of seeds", one["mean_difference"], "share")
    yield line("p (Holm)", one["p_holm"])
    yield line("detectable effect", one["detectable_effect"], "share")


UNITS = {"share", "s", ""}
"""Units that are words; any other is a currency."""
COSTS = {
    "cost of all runs of the window": "window_total",
    "variable cost per accepted run": "variable_per_accepted",
    "at least, where nothing was accepted": "floor_per_accepted",
    "training, own stage": "training",
    "training, cumulative": "training_cumulative",
    "training, beyond the incumbent": "training_beyond_incumbent",
    "loaded cost per accepted run": "loaded",
    "amortised cost per accepted run": "amortised",
}
"""What is paid in the currency of the price list, by its label."""


def _cell(value: Any, language: Language) -> str:
    found = NotComputable.parse(value)
    if found is None:
        return ""
    if isinstance(found, NotComputable):
        return language.say(found.reason)
    if isinstance(found, int | float):
        number = repr(found)
        return number if language.code == ENGLISH.code else number.replace(".", ",")
    return _inert(language.say(str(found)))


def _inert(text: str) -> str:
    """A text that no spreadsheet runs: names come from outside."""
    return f"'{text}" if text.startswith(_ACTIVE) else text
