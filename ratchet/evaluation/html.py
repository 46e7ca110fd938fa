"""The release report as one self-contained page: no script, no external request, light and dark, readable on paper.

It shows the decision first, then why, then the policies, then where everything comes from. All figures come from the
report object and read as they do in the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ratchet.contracts.score import NotComputable
from ratchet.evaluation import format as show
from ratchet.evaluation.audits import audit_section
from ratchet.evaluation.report import FIGURES, MARKS, PAIRS, Report, pair_cells
from ratchet.evaluation.style import STYLE
from ratchet.evaluation.svg import Whisker, lines, whiskers

Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
"""Points (step, value) by name of the quantity, then by policy."""


def release_page(body: Report, curves: Curves | None = None) -> str:
    """Render the report.

    Args:
        body: what `report` returned.
        curves: learning curves, if there are any.

    Returns:
        A complete HTML document.
    """
    lock = body["split_lock"]
    title = f"Release report: {body['experiment']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="muted">manifest <code>{escape(body["manifest_digest"][:12])}</code> · split lock '
        f"<code>{escape(str(lock.get('digest', ''))[:12])}</code> · train {show.whole(lock.get('train'))}, "
        f"validation {show.whole(lock.get('validation'))}, held-out {show.whole(lock.get('heldout'))} tasks</p>",
        _verdict(body["decision"]),
        f'<div class="plots">{"".join(_plots(body, curves or {}))}</div>',
        _rules(body["decision"]),
        audit_section(body["audits"]) if "audits" in body else "",
        "<h2>Policies on the held-out tasks</h2><p class='muted'>95 % intervals, clustered by repo.</p>",
        _policies(body),
        _pairs(body),
        "<h2>Segments</h2>",
        _segments(body),
        "<h2>Lineage</h2>",
        _tree(body["lineage"]),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _verdict(decision: Mapping[str, Any]) -> str:
    undecided = NotComputable.parse(decision)
    if isinstance(undecided, NotComputable):
        return f'<div class="verdict none"><strong>No decision</strong><p>{escape(undecided.reason)}</p></div>'
    words = {"promote": "Promote", "review": "A person has to look at", "reject": "Reject"}[decision["state"]]
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in decision["reasons"])
    when = f"decided {show.moment(decision['decided_at'])} by {decision['decided_by']}"
    return (
        f'<div class="verdict {decision["state"]}"><strong>{words} {escape(decision["candidate"])}</strong>'
        f'<p class="muted">{escape(when)}</p>'
        f"{f'<ul>{reasons}</ul>' if reasons else '<p>Every rule passed.</p>'}</div>"
    )


def _rules(decision: Mapping[str, Any]) -> str:
    if "rules" not in decision:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(rule["name"].replace("_", " "))}</th>'
        f'<td class="{_tone(rule)}">{MARKS[rule["passed"]]}</td><td>{escape(rule["reason"])}</td>'
        f"<td><code>{escape(rule['evidence'][:12])}</code></td></tr>"
        for rule in decision["rules"]
    )
    return (
        '<h2>Rules of the gate</h2><div class="wide"><table><thead><tr><th>rule</th><th>outcome</th><th>why</th>'
        f"<th>evidence</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _tone(rule: Mapping[str, Any]) -> str:
    return "ok" if rule["passed"] else "maybe" if rule["on_failure"] == "review" else "no"


def _policies(body: Report) -> str:
    heads = "".join(f'<th class="n">{escape(policy["name"])}</th>' for policy in body["policies"])
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th>'
        + "".join(f'<td class="n">{escape(figure(policy))}</td>' for policy in body["policies"])
        + "</tr>"
        for label, figure in FIGURES
    )
    return f'<div class="wide"><table><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _pairs(body: Report) -> str:
    if not body["comparisons"]:
        return ""
    heads = f"<th>{PAIRS[0]}</th>" + "".join(f'<th class="n">{escape(head)}</th>' for head in PAIRS[1:])
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f'<td class="n">{escape(text)}</td>' for text in rest)
        + "</tr>"
        for first, *rest in map(pair_cells, body["comparisons"])
    )
    return (
        '<h2>Pairs of policies</h2><div class="wide"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _segments(body: Report) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(segment["name"])}</th><td>{escape(policy["name"])}</td>'
        + "".join(
            f'<td class="n">{escape(text)}</td>'
            for text in (
                f"{segment['accepted']} of {segment['n']}",
                show.points(segment["difference"]),
                show.p_value(segment["p_holm"]),
                show.points(segment["detectable_effect"]),
            )
        )
        + "</tr>"
        for policy in body["policies"][1:]
        for segment in policy["segments"]
    )
    heads = "<th>segment</th><th>policy</th>" + "".join(
        f'<th class="n">{head}</th>' for head in ("accepted", "difference", "p (Holm)", "drop it would show")
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _plots(body: Report, curves: Curves) -> list[str]:
    policies = body["policies"]
    names = [policy["name"] for policy in policies]
    plots = [
        _figure(
            "Acceptance by majority of seeds",
            whiskers(
                "Acceptance of each policy with its 95 % interval",
                [_whisker(p["name"], p["acceptance"], show.percent_interval(p["acceptance"])) for p in policies],
                lambda x: f"{100 * x:.0f} %",
            ),
        ),
        _figure(
            "Over the incumbent, paired, in points",
            whiskers(
                "Paired difference of each candidate to the incumbent with its 95 % interval",
                [
                    _whisker(p["name"], p["paired_difference"], show.points_interval(p["paired_difference"]))
                    for p in policies
                ],
                lambda x: f"{100 * x:+.0f}" if x else "0",
                zero=True,
            ),
        ),
        _figure(
            "Latency, p50 to p95",
            whiskers(
                "Latency of each policy: the mark is the median, the line ends at the 95th percentile",
                [
                    _whisker(
                        p["name"],
                        {"value": p["latency_s"]["p50"], "low": p["latency_s"]["p50"], "high": p["latency_s"]["p95"]},
                        f"{show.seconds(p['latency_s']['p50'])} to {show.seconds(p['latency_s']['p95'])}",
                    )
                    for p in policies
                ],
                lambda x: f"{x:.4g} s",
            ),
        ),
        _figure(f"Training and runs, in {policies[0]['cost']['currency']}: where lines cross", _cost_curves(policies)),
    ]
    plots += [
        _figure(
            f"Learning: {quantity.replace('_', ' ')}",
            lines(f"{quantity} over training", by_policy, names, "step", lambda x: f"{x:.4g}", lambda y: f"{y:.3g}"),
        )
        for quantity, by_policy in curves.items()
    ]
    return plots


def _cost_curves(policies: Sequence[Mapping[str, Any]]) -> str:
    """Training plus variable cost over accepted runs: lines cross at break-even."""
    costs = {p["name"]: (p["cost"]["training_cumulative"], p["cost"]["variable_per_accepted"]) for p in policies}
    known = {name: (t, v) for name, (t, v) in costs.items() if isinstance(t, float) and isinstance(v, float)}
    crossings = [p["cost"]["break_even"] for p in policies if isinstance(p["cost"]["break_even"], float)]
    end = 2 * max(crossings) if crossings and max(crossings) > 0 else float(policies[0]["cost"]["horizon_runs"])
    series = {name: [(0.0, t), (end, t + v * end)] for name, (t, v) in known.items()}
    plot = lines(
        "Total cost over accepted runs; a candidate's line crosses the incumbent's at its break-even",
        series,
        [p["name"] for p in policies],
        "accepted runs",
        lambda x: f"{x:,.5g}",
        lambda y: f"{y:,.4g}",
    )
    words = "".join(
        f'<p class="muted">{escape(p["name"])}: {escape(show.money(p["cost"]["variable_per_accepted"]))}</p>'
        for p in policies
        if p["name"] not in known
    )
    return plot + words


def _figure(caption: str, content: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{content}</figure>"


def _whisker(label: str, estimate: Mapping[str, Any], words: str) -> Whisker:
    numbers = [estimate.get(key) for key in ("value", "low", "high")]
    value, low, high = (float(x) if isinstance(x, int | float) else None for x in numbers)
    return Whisker(label, value, low, high, words)


def _tree(value: Any) -> str:
    if isinstance(value, Mapping):
        items = "".join(f"<li>{escape(str(key))}: {_tree(child)}</li>" for key, child in value.items())
        return f"<ul>{items}</ul>"
    if isinstance(value, list | tuple):
        return f"<ul>{''.join(f'<li>{_tree(child)}</li>' for child in value)}</ul>"
    return f"<code>{escape(str(value))}</code>"
