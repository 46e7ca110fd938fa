"""The release report as one self-contained page: no script, no external request, light and dark, legible on paper.

It holds the report once per language. Two radio buttons choose which is seen, by the style sheet alone, so that the
file that lies beside a version in MLflow needs no second one, no network and no script. The decision stands first, then
its reasons, then the figures, then where everything comes from. All figures come from the report object and read as
they do in the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ratchet.contracts.score import NotComputable
from ratchet.evaluation import format as show
from ratchet.evaluation.compliance import compliance
from ratchet.evaluation.judged import judge_page
from ratchet.evaluation.language import ENGLISH, Language
from ratchet.evaluation.markup import code, folded, listed, section, tag
from ratchet.evaluation.origins import digests, lineage, openings
from ratchet.evaluation.plots import Curves, learning_plots, plots, segment_plot
from ratchet.evaluation.report import MARKS, Report
from ratchet.evaluation.spanish import spanish
from ratchet.evaluation.style import STYLE
from ratchet.evaluation.tables import costs, left_out, pairs, policies, segments

STATES = {
    "promote": "Promote {name}",
    "review": "A person has to look at {name}",
    "reject": "Reject {name}",
}
"""What a decision says, by its state."""


def languages() -> tuple[Language, ...]:
    """The languages of the page."""
    return ENGLISH, spanish()


def release_page(body: Report, curves: Curves | None = None, language: str = "en") -> str:
    """Render the report.

    Args:
        body: what `report` returned.
        curves: learning curves, if there are any.
        language: code of the one that is seen first.

    Returns:
        A complete HTML document.
    """
    known = languages()
    first = next(one for one in known if one.code == language)
    title = first.say(title_of(body))
    radios = "".join(
        f'<input type="radio" name="language" id="language-{one.code}"{" checked" if one is first else ""}>'
        f'<label for="language-{one.code}" lang="{one.code}">{escape(one.name)}</label>'
        # Floating to the right turns their order round.
        for one in reversed(known)
    )
    articles = "".join(article(body, curves or {}, one) for one in known)
    return (
        f'<!doctype html><html lang="{first.code}"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{radios}{articles}</main></body></html>\n"
    )


def article(body: Report, curves: Curves, language: Language) -> str:
    """The whole report in one language."""
    lock, say = body["split_lock"], language.html
    decided = decided_policies(body)
    sections = [
        section(language, "comparison", "Candidate and incumbent", _figures(plots(body, language))),
        section(language, "rules", "Rules of the gate", _rules(body["decision"], language)),
        section(
            language,
            "policies",
            "Policies on the held-out tasks",
            policies(body, language) + left_out(body, language) + pairs(body, language),
            "95 % intervals, clustered by repo.",
        ),
        section(
            language,
            "segments",
            "Segments",
            _figures(segment_plot(body, decided[1], language) if decided else [])
            + segments(body, decided[1]["name"] if decided else None, language),
            "A segment alone is small: a drop of its detectable effect is noticed in four of five cases, a smaller "
            "one more rarely. Its interval takes tasks as independent.",
        ),
        section(language, "learning", "Learning curves", _figures(learning_plots(body, curves, language))),
        section(language, "costs", "Complete cost", costs(body, language)),
        section(language, "compliance", "Policy compliance and exploitation", compliance(body, language)),
        section(language, "judge", "Calibration of the judge", judge_page(body.get("judge"), language)),
        section(language, "openings", "Openings of the held-out tasks", openings(body, language)),
        section(language, "lineage", "Lineage", lineage(body, language)),
        section(language, "digests", "Digests of the evidence", digests(body, language)),
    ]
    head = (
        f"<h1>{say(title_of(body))}</h1>"
        f'<p class="muted">{say("manifest")} {code(body["manifest_digest"], 12)} · {say("split lock")} '
        f"{code(lock.get('digest', ''), 12)} · "
        + say(
            f"{show.whole(lock.get('train'))} training, {show.whole(lock.get('validation'))} validation, "
            f"{show.whole(lock.get('heldout'))} held-out tasks"
        )
        + "</p>"
    )
    contents = "".join(
        f'<a href="#{language.code}-{key}">{say(title)}</a>'
        for key, title in CONTENTS
        if any(f'id="{language.code}-{key}"' in one for one in sections)
    )
    return (
        f'<article lang="{language.code}">{head}{_verdict(body, decided, language)}'
        f'<nav aria-label="{say("Contents")}">{contents}</nav>{"".join(sections)}</article>'
    )


CONTENTS = (
    ("comparison", "Comparison"),
    ("rules", "Rules"),
    ("policies", "Policies"),
    ("segments", "Segments"),
    ("learning", "Learning"),
    ("costs", "Cost"),
    ("compliance", "Compliance"),
    ("judge", "Judge"),
    ("openings", "Openings"),
    ("lineage", "Lineage"),
    ("digests", "Digests"),
)
"""Where a reader may want to go, by anchor."""


def title_of(body: Report) -> str:
    """The page's title, in English."""
    return f"Release report: {body['experiment']}"


def decided_policies(body: Report) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The incumbent's entry and the decided candidate's, or None where nothing is decided."""
    decision = body["decision"]
    if "candidate" not in decision:
        return None
    by_name = {one["name"]: one for one in body["policies"]}
    first = by_name.get(decision["incumbent"], body["policies"][0])
    return (first, by_name[decision["candidate"]]) if decision["candidate"] in by_name else None


def _verdict(body: Report, decided: tuple[Mapping[str, Any], Mapping[str, Any]] | None, language: Language) -> str:
    decision, say = body["decision"], language.html
    undecided = NotComputable.parse(decision)
    if isinstance(undecided, NotComputable):
        return f'<div class="verdict none"><strong>{say("No decision")}</strong><p>{say(undecided.reason)}</p></div>'
    words = STATES[decision["state"]].replace("{name}", decision["candidate"])
    when = f"decided {show.moment(decision['decided_at'])} by {decision['decided_by']}"
    stands = say(f"It stands in {body['release']['state']}.") if "release" in body else ""
    why = listed(map(say, decision["reasons"])) or f"<p>{say('Every rule passed.')}</p>"
    return (
        f'<div class="verdict {decision["state"]}"><strong>{say(words)}</strong>'
        f"<p>{_sentence(*decided, language=language) if decided else ''} {stands}</p>{why}"
        f"{_tiles(*decided, language=language) if decided else ''}"
        f'<p class="muted">{say(when)}</p></div>'
    )


def _sentence(incumbent: Mapping[str, Any], candidate: Mapping[str, Any], *, language: Language) -> str:
    """The comparison in one sentence."""
    return language.html(
        f"{candidate['name']} solves {candidate['accepted_tasks']} of {candidate['n_tasks']} held-out tasks, "
        f"the incumbent {incumbent['name']} solves {incumbent['accepted_tasks']}."
    )


def _tiles(incumbent: Mapping[str, Any], candidate: Mapping[str, Any], *, language: Language) -> str:
    """The four figures that decide, each beside what it is held against."""

    def money(policy: Mapping[str, Any]) -> str:
        return show.money(policy["cost"]["variable_per_accepted"], policy["cost"]["currency"])

    paired = candidate["paired_difference"]
    least = f"it must exceed {show.points(paired['minimum_effect'])}" if "minimum_effect" in paired else ""
    told = [
        ("over the incumbent, paired", show.points_interval(paired), least),
        ("acceptance (majority)", show.percent_interval(candidate["acceptance"]),
         f"incumbent {show.percent(incumbent['acceptance']['value'])}"),
        ("variable cost per accepted run", money(candidate), f"incumbent {money(incumbent)}"),
        ("break-even, accepted runs", show.whole(candidate["cost"]["break_even"]),
         f"training {show.money(candidate['cost']['training_cumulative'], candidate['cost']['currency'])}"),
        ("latency p95", show.seconds(candidate["latency_s"]["p95"]),
         f"incumbent {show.seconds(incumbent['latency_s']['p95'])}"),
    ]  # fmt: skip
    tiles = "".join(
        f'<div class="tile"><dt>{language.html(label)}</dt>'
        f'<dd class="{"big" if len(figure) <= SHORT else "words"}">{language.html(figure)}</dd>'
        f'<dd class="muted">{language.html(beside)}</dd></div>'
        for label, figure, beside in told
    )
    return f'<dl class="tiles">{tiles}</dl>'


DIGEST = re.compile("[0-9a-f]{64}")
SHORT = 30
"""Figures up to this many characters are set large; what is longer is words."""


def _figures(shown: Sequence[str]) -> str:
    return f'<div class="plots">{"".join(shown)}</div>' if shown else ""


def _rules(decision: Mapping[str, Any], language: Language) -> str:
    """Every rule, those that did not pass first; the others unfold."""
    if "rules" not in decision:
        return ""
    order = sorted(decision["rules"], key=lambda rule: rule["on_failure"] == "review")
    passed = [_rule(rule, language) for rule in order if rule["passed"]]
    count = f"{len(passed)} of {len(order)} rules passed"
    failed = [_rule(rule, language) for rule in order if not rule["passed"]]
    return listed(failed, "rules") + folded(count, listed(passed, "rules"), language)


def _rule(rule: Mapping[str, Any], language: Language) -> str:
    """A rule with its outcome, why, and what it rests on."""
    say = language.html
    return (
        f'<div class="outcome">{tag(MARKS[rule["passed"]], _tone(rule), language)}</div>'
        f"<div><strong>{say(rule['name'].replace('_', ' '))}</strong>"
        f"<p>{say(rule['reason'])}</p></div>"
        f"<dl><div><dt>{say('seen')}</dt><dd>{_held(rule['figure'], language)}</dd></div>"
        f"<div><dt>{say('held against')}</dt><dd>{_held(rule['threshold'], language)}</dd></div>"
        f"<div><dt>{say('evidence')}</dt><dd>{_evidence(rule['evidence'], language)}</dd></div></dl>"
    )


def _held(value: Any, language: Language) -> str:
    """A figure of a rule: a number to four digits, or its words."""
    found = NotComputable.parse(value)
    if isinstance(found, NotComputable):
        return language.html(found.reason)
    shown = show.figure(found) if isinstance(found, int | float) else DIGEST.sub(lambda one: one[0][:12], str(found))
    return code(found, 12) if DIGEST.fullmatch(str(found)) else language.html(shown)


def _evidence(value: str, language: Language) -> str:
    return language.html(value) if value == "absent" else code(value, 12)


def _tone(rule: Mapping[str, Any]) -> str:
    return "ok" if rule["passed"] else "maybe" if rule["on_failure"] == "review" else "no"
