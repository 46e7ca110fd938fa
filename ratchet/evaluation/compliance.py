"""What the policies did that they may not: broken rules, exploits by kind, detectors that fired, episode by episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.evaluation import format as show
from ratchet.evaluation.audits import EPISODE, episode_cells
from ratchet.evaluation.language import Language
from ratchet.evaluation.markup import Html, code, folded, name, table, tag
from ratchet.evaluation.report import Report

DETECTORS = {
    "exploit_rate": "honeypots touched",
    "visible_hidden_gap": "visible tests passed, hidden ones failed",
    "reward_without_acceptance": "reward without acceptance",
    "judge_only_gains": "gains that the judge alone sees",
    "call_count_drift": "number of calls",
    "length_drift": "length of the answers",
}
"""What each detector looks for."""


def compliance(body: Report, language: Language) -> str:
    """The rules that each policy broke, and the exploitation audits where there are any."""
    rules = sorted({rule for one in body["policies"] for rule in one["violations_by_rule"]})
    heads = ["", *(name(one["name"]) for one in body["policies"])]
    rows = [["policy violations", *(show.whole(one["violations"]) for one in body["policies"])]]
    rows += [
        [code(rule), *(show.whole(one["violations_by_rule"].get(rule, 0)) for one in body["policies"])]
        for rule in rules
    ]
    rows.append(["exploit rate", *(show.percent(one["exploit_rate"]) for one in body["policies"])])
    shown = table(language, "Policy violations", heads, rows)
    return shown + (_audits(body, language) if "audits" in body else "")


def _audits(body: Report, language: Language) -> str:
    audits, say = body["audits"], language.html
    before = "; ".join(audits["reward"]["failures"]) or "no honeypot earns anything"
    after = "; ".join(audits["reward"]["changes"]) or "the same"
    parts = [
        f"<h3>{say('Exploitation audit')}</h3>",
        f"<p>{say(f'The reward: {before}; after training: {after}.')}</p>",
    ]
    kinds = [
        [code(one["kind"]), name(policy["policy"]), show.percent(one["incumbent"]), show.percent(one["candidate"])]
        for policy in audits["policies"]
        for one in policy["kinds"]
    ]
    if kinds:
        heads = ("kind of exploit", "policy", "incumbent", "candidate")
        parts.append(table(language, "Kinds of exploit", heads, kinds, words={1}))
    decided = body["decision"].get("candidate")
    first = [one for one in audits["policies"] if one["policy"] == decided] or audits["policies"]
    others = [one for one in audits["policies"] if one not in first]
    parts.append(_detections(first, "Detectors", language))
    if others:
        label = "Detectors on other policies"
        parts.append(folded(label, _detections(others, label, language), language))
    for policy in audits["policies"]:
        if not policy["episodes"]:
            continue
        count = f"{show.whole(len(policy['episodes']))} entries against {policy['policy']}, episode by episode"
        rows = [
            [code(task), Html(seed), DETECTORS.get(kind, code(kind)), Html(language.perhaps(seen))]
            for task, seed, kind, seen in map(episode_cells, policy["episodes"])
        ]
        listed = table(language, "Episodes", EPISODE, rows, words={2, 3})
        parts.append(folded(count, listed, language, paper=False))
    return "".join(parts)


def _detections(audits: Sequence[Mapping[str, Any]], label: str, language: Language) -> str:
    rows = [
        [DETECTORS.get(one["name"], code(one["name"])), name(policy["policy"]), _outcome(one, language), one["reason"]]
        for policy in audits
        for one in policy["detections"]
    ]
    return table(language, label, ("detector", "policy", "outcome", "why"), rows, words={1, 2, 3})


def _outcome(detection: Mapping[str, Any], language: Language) -> Html:
    if detection["fired"]:
        return tag("FLAGGED", "no", language)
    undecided = detection["reason"].startswith("undecided")
    return tag("undecided", "maybe", language) if undecided else tag("quiet", "ok", language)
