"""The plots of the release page: acceptance, difference, segments, latency, cost with its crossings, learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.evaluation import format as show
from ratchet.evaluation.language import Language
from ratchet.evaluation.markup import figure, listed
from ratchet.evaluation.report import Report
from ratchet.evaluation.svg import Mark, Number, Whisker, lines, whiskers

Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
"""Points (step, value) by name of the quantity, then by policy."""


def plots(body: Report, language: Language) -> list[str]:
    """The plots that compare the policies."""
    shown, say = body["policies"], language.say
    differences = [one for one in shown if "value" in one["paired_difference"]]
    least = differences[0]["paired_difference"]["minimum_effect"] if differences else None
    goal = Mark(least, say(f"worth shipping: {show.points(least)}")) if least else None
    return [
        figure(
            "Acceptance by majority of seeds",
            whiskers(
                say("Acceptance of each policy with its 95 % interval"),
                [_whisker(body, one, one["acceptance"], show.percent_interval(one["acceptance"]), language)
                 for one in shown],
                _number(lambda x: f"{100 * x:.0f} %", language),
            ),
            language,
        ),
        figure(
            "Difference to the incumbent, paired",
            whiskers(
                say("Paired difference of each candidate to the incumbent with its 95 % interval"),
                [
                    _whisker(body, one, one["paired_difference"], show.points_interval(one["paired_difference"]),
                             language)
                    for one in differences or shown
                ],
                _number(lambda x: f"{100 * x:+.0f}" if abs(x) > 1e-9 else "0", language),
                zero=True,
                mark=goal,
            ),
            language,
        ),
        figure(
            "Latency, from the median to the 95th percentile",
            whiskers(
                say("Latency of each policy: the mark is the median, the line ends at the 95th percentile"),
                [_latency(body, one, language) for one in shown],
                _number(lambda x: f"{x:.4g} s", language),
            ),
            language,
        ),
        figure(
            f"Training and runs, in {shown[0]['cost']['currency']}: where lines cross",
            _cost_curves(body, language),
            language,
            "Each line starts at what the training cost and rises with every accepted run; from the crossing on, the "
            "candidate is the cheaper one.",
        ),
    ]  # fmt: skip


def segment_plot(body: Report, candidate: Mapping[str, Any], language: Language) -> list[str]:
    """The candidate's difference in every segment."""
    colour = _colour(body, candidate["name"])
    items = []
    for one in candidate["segments"]:
        estimate = {"value": one["difference"], **{bound: one.get(bound) for bound in ("low", "high")}}
        label = f"{one['name']} ({one['n']})"
        items.append(_whisker(body, {"name": label}, estimate, show.points_interval(estimate), language, colour))
    plot = whiskers(
        language.say(f"Difference of {candidate['name']} to the incumbent by segment, with 95 % intervals"),
        items,
        _number(lambda x: f"{100 * x:+.0f}" if abs(x) > 1e-9 else "0", language),
        zero=True,
    )
    return [figure(f"{candidate['name']} by segment (tasks)", plot, language)]


def learning_plots(body: Report, curves: Curves, language: Language) -> list[str]:
    """What the trainings looked like, a plot for each quantity."""
    names = [one["name"] for one in body["policies"]]
    return [
        figure(
            quantity.replace("_", " "),
            lines(
                language.say(f"{quantity.replace('_', ' ')} over training"),
                by_policy,
                names,
                language.say("step"),
                _number(lambda x: f"{x:.4g}", language),
                _number(lambda y: f"{y:.3g}", language),
            ),
            language,
        )
        for quantity, by_policy in curves.items()
    ]


def _cost_curves(body: Report, language: Language) -> str:
    """Training plus variable cost over accepted runs. What the incumbent's training cost is spent either way."""
    shown = body["policies"]
    costs = {
        one["name"]: (_training(one["cost"]) if at else 0.0, one["cost"]["variable_per_accepted"])
        for at, one in enumerate(shown)
    }
    known = {name: (t, v) for name, (t, v) in costs.items() if isinstance(t, float) and isinstance(v, float)}
    crossings = {
        one["name"]: one["cost"]["break_even"]
        for one in shown
        if isinstance(one["cost"]["break_even"], float) and one["name"] in known
    }
    last = crossings.get(body["decision"].get("candidate", ""), max(crossings.values(), default=0.0))
    end = 2 * last if last > 0 else float(shown[0]["cost"]["horizon_runs"])
    plot = lines(
        language.say("Total cost over accepted runs; a candidate's line crosses the incumbent's at its break-even"),
        {name: [(0.0, t), (end, t + v * end)] for name, (t, v) in known.items()},
        [one["name"] for one in shown],
        language.say("accepted runs"),
        _number(lambda x: f"{x:,.5g}" if x < 1e5 else f"{x:,.0f}", language),
        _number(lambda y: f"{y:,.0f}" if y >= 10 else show.money(y), language),
        [
            Mark(
                at,
                language.say(f"{show.whole(at)} accepted runs"),
                known[name][0] + known[name][1] * at,
                _colour(body, name),
            )
            for name, at in crossings.items()
            if at == last > 0
        ],
    )
    told = (language.html(f"{one['name']} breaks even: {_break_even(one['cost'])}") for one in shown[1:])
    return plot + listed(told, "muted")


def _training(cost: Mapping[str, Any]) -> Any:
    """What the crossing has to pay back: what was spent beyond the incumbent."""
    return cost.get("training_beyond_incumbent", cost["training_cumulative"])


def _break_even(cost: Mapping[str, Any]) -> str:
    interval = cost["break_even_interval"]
    if not isinstance(cost["break_even"], float):
        return show.whole(cost["break_even"])
    return f"{show.whole(cost['break_even'])} accepted runs, between {show.whole(interval['low'])} and " + show.whole(
        interval["high"]
    )


def _latency(body: Report, policy: Mapping[str, Any], language: Language) -> Whisker:
    p50, p95 = policy["latency_s"]["p50"], policy["latency_s"]["p95"]
    words = f"{show.seconds(p50)} to {show.seconds(p95)}" if isinstance(p50, float) else show.seconds(p50)
    return _whisker(body, policy, {"value": p50, "low": p50, "high": p95}, words, language)


def _whisker(
    body: Report,
    policy: Mapping[str, Any],
    estimate: Mapping[str, Any],
    words: str,
    language: Language,
    colour: int | None = None,
) -> Whisker:
    numbers = [estimate.get(key) for key in ("value", "low", "high")]
    value, low, high = (float(x) if isinstance(x, int | float) else None for x in numbers)
    own = _colour(body, policy["name"]) if colour is None else colour
    return Whisker(policy["name"], value, low, high, language.say(words), own)


def _colour(body: Report, name: str) -> int:
    return [one["name"] for one in body["policies"]].index(name)


def _number(number: Number, language: Language) -> Number:
    return lambda x: language.say(number(x))
