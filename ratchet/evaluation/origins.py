"""Where everything on the page comes from: who opened the held-out tasks, the way from the version to the grants, and
the digests by which all of it can be looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ratchet.evaluation import format as show
from ratchet.evaluation.language import Language
from ratchet.evaluation.markup import Html, code, listed, name, simulated, table, tag
from ratchet.evaluation.report import Report


def openings(body: Report, language: Language) -> str:
    """Every opening of the held-out tasks, oldest first."""
    found = body.get("openings")
    if not found:
        return ""
    names = {one["digest"]: one["name"] for one in body["policies"]}
    rows = [
        [
            str(at),
            Html(f"{name(one.get('name') or names.get(one['policy'], ''))} {code(one['policy'], 12)}"),
            name(one.get("experiment", body["experiment"])),
            Html(show.moment(one["at"])),
            name(one["by"]),
        ]
        for at, one in enumerate(sorted(found, key=lambda one: str(one["at"])), start=1)
    ]
    heads = ("opening", "policy", "experiment", "when", "by")
    shown = table(language, "Openings of the held-out tasks", heads, rows, words={1, 2, 3, 4})
    judged = len({one["policy"] for one in found if one.get("candidate")})
    if not judged:
        return shown
    count = f"{judged} candidates have been judged on these tasks." if judged > 1 else "It is the first candidate here."
    return f"<p>{language.html(count)}</p>{shown}"


def lineage(body: Report, language: Language) -> str:
    """From the version down to the grants, as a tree: what was trained from what, by which right."""
    found, say = body["lineage"], language.html
    if "trained_from" not in found:
        return ""
    now = {one["grant_id"]: one["state"] for one in body.get("rights_now", ())}
    grants = {one["grant_id"]: one for one in found["grants"]}
    under = {key for step in found["trained_from"] for key in _keys(step, grants)}
    older = [one for key, one in grants.items() if key not in under and not key.endswith("/passed_on")]
    steps = _base(found, body, [_grant(one, now, language) for one in older], language)
    for step in reversed(found["trained_from"]):
        used = [grants[key] for key in _keys(step, grants)]
        learned = listed([_grant(one, now, language) for one in used])
        data = (
            f"{say('learned from the dataset')} {code(step['dataset'], 12)}{_dataset(step, language)}, "
            f"{say('contamination certificate')} {code(step['certificate'], 12)}{learned}"
        )
        steps = listed(
            [f"{say('policy')} <strong>{name(step['policy'])}</strong> {code(step['digest'], 12)}"
             + listed([data, *_items(steps, say("started from"))])]
        )  # fmt: skip
    passed = [one for key, one in grants.items() if key.endswith("/passed_on")]
    through = listed([_grant(one, now, language) for one in passed])
    release = body.get("release", {})
    state = f" {tag(release['state'], 'told', language)}" if release else ""
    version = (
        f"{say('version')} {name(release.get('version', ''))} {code(found['version'], 12)}{state}, {say('weights')} "
        f"{code(found['weights'], 12)}{steps}"
    )
    return f'<div class="tree">{listed([version])}</div>{_compared(found, language)}' + (
        f"<p>{say('Learned through other policies:')}</p>{through}" if passed else ""
    )


def _items(steps: str, words: str) -> list[str]:
    return [f"{words}{steps}"] if steps else []


def _compared(found: Mapping[str, Any], language: Language) -> str:
    """What the candidates were compared with: the version in production, or the baseline where there was none."""
    held = found.get("incumbent")
    if not held:
        return ""
    if held["version"] is None:
        return f"<p>{language.html('Compared with the baseline: nothing was in production.')}</p>"
    told = language.html("Compared with the version in production:")
    return f"<p>{told} {name(held['label'])} {code(held['policy'], 12)}</p>"


def _base(found: Mapping[str, Any], body: Report, grants: Sequence[str], language: Language) -> str:
    """Where the first step started: at a version of an earlier run with its `grants`, or at the base checkpoint."""
    older = [f"{name(one['policy'])} {code(one['digest'], 12)}" for one in found.get("ancestors", ())]
    if older:
        return listed([language.html("a version of an earlier run:") + listed([*older, *grants])])
    base = f"{language.html('base checkpoint')} {name(found['base'])}"
    logs = [
        language.html(f"{show.whole(one['episodes'])} episodes of the scripted agent {one['agent']}")
        + f" {simulated(language)}"
        for one in body.get("logs", ())
    ]
    told = f" · {language.html('first logs:')}{listed(logs)}" if logs else ""
    return listed([base + told])


def _keys(step: Mapping[str, Any], grants: Mapping[str, Any]) -> list[str]:
    """Grants of a step; a report of before steps named them shows all under every step."""
    if "grants" in step:
        return [f"{one}/{step['purpose']}" for one in step["grants"] if f"{one}/{step['purpose']}" in grants]
    return [key for key in grants if not key.endswith("/passed_on")]


def _dataset(step: Mapping[str, Any], language: Language) -> str:
    if "records" not in step:
        return ""
    return f" ({_records(step['records'], language)}, {code(step['purpose'])})"


def _records(count: int, language: Language) -> str:
    return language.html(f"{show.whole(count)} records")


def _grant(grant: Mapping[str, Any], now: Mapping[str, str], language: Language) -> str:
    """A grant with its state at the decision, and its state now where that is another one."""
    say, key = language.html, grant["grant_id"].split("/")[0]
    told = tag(grant["state"], "ok" if grant["valid"] else "no", language)
    later = now.get(key, grant["state"])
    since = f" {say('and now')} {tag(later, 'no', language)}" if later != grant["state"] and grant["valid"] else ""
    rows = f", {_records(grant['rows'], language)}" if grant.get("rows") else ""
    return f"{say('grant')} <strong>{name(grant['grant_id'])}</strong> {told}{since}{rows}, {code(grant['digest'], 12)}"


def digests(body: Report, language: Language) -> str:
    """Digest of everything that the decision rests on, in full."""
    found = body["lineage"]
    rows: list[list[str]] = [[label, code(value)] for label, value in _named(found) if value]
    inputs: list[list[str]] = [[_input(key, language), code(value)] for key, value in found.get("inputs", {}).items()]
    return (
        table(language, "Digests of the evidence", ("what", Html("SHA-256")), rows + inputs, words={1}) if rows else ""
    )


def _named(found: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    yield "version", found.get("version")
    yield "policy", found.get("policy")
    yield "weights", found.get("weights")
    yield "decision", found.get("decision")
    yield "environment", found.get("environment")


def _input(key: str, language: Language) -> Html:
    """An input of the decision: what it is, and which one of these."""
    what, _, which = key.partition(":")
    said = language.html(INPUTS[what]) if what in INPUTS else name(what)
    return Html(f"{said} <em>{name(which)}</em>" if which else said)


INPUTS = {
    "manifest": "manifest",
    "split_lock": "split lock",
    "reward": "reward",
    "limits": "limits of the gate",
    "gate_inputs": "all inputs of the gate",
    "rights_ledger": "rights ledger",
    "incumbent": "pin of the incumbent",
    "permissions": "permissions",
    "contamination": "contamination certificate",
    "reward_audit": "audit of the reward",
    "policy_audit": "audit of the episodes",
    "scorecard": "scorecard",
    "rows": "held-out rows",
    "right": "training right",
    "judge": "calibration of the judge",
}
"""Inputs of a decision by their key."""
