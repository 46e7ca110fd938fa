"""What opens a promotion: a decision on this very version, and the owner's rule or a person's approval of it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from ratchet.errors import TransitionError
from ratchet.release.decision import Decision
from ratchet.release.records import Event, Version
from ratchet.release.states import PROMOTIONS, State, rank

RULE = "rule:"
"""How the name of an actor that is no person begins."""


def rule_reaches(version: Version, decision: Decision) -> State | None:
    """How far the rule that the owner authorised beforehand may carry a version on this decision, if at all.

    Under four eyes the owner is the second pair: a rule of an owner who is the author of the run carries nothing.
    """
    release = version.release
    if decision.state != "promote" or release.authorised_rule == "none":
        return None
    if release.four_eyes and same_person(release.owner, version.author):
        return None
    return State(release.authorised_rule)


def approvals_of(events: Iterable[Event], version: str, decision: str) -> list[Event]:
    """The approvals of one decision on one version."""
    return [
        event
        for event in events
        if event.kind == "approved" and event.version == version and event.decision == decision
    ]


def refuse_unauthorised(
    version: Version, state: State | None, decision: Decision | None, approvals: list[Event]
) -> None:
    """Raise TransitionError unless `decision` is about this version and opens `state` (None: only the first is asked).

    A `promote` opens what the authorised rule reaches; beyond that, and for `review`, an approval must reach it.
    """
    culprit = f"promotion of {version.label} to {state}" if state else f"decision on {version.label}"
    if not isinstance(decision, Decision):
        raise TransitionError(
            culprit, rule="only a decision of the gate opens it", remedy="run the evaluation and the gate"
        )
    if decision.candidate_digest != version.policy.digest:
        raise TransitionError(
            culprit,
            seen=decision.candidate_digest[:12],
            rule=f"the decision must be about the policy {version.policy.digest[:12]}",
            remedy="hand over the decision that the gate took on this policy",
        )
    if decision.manifest_digest != version.manifest_digest:
        raise TransitionError(
            culprit,
            seen=decision.manifest_digest[:12],
            rule=f"the decision must be taken under the manifest {version.manifest_digest[:12]}",
            remedy="register the policy under the manifest that it was judged by",
        )
    if state is None:
        return
    if decision.state == "reject":
        raise TransitionError(
            culprit,
            seen="reject",
            rule=f"a rejection allows only rejected ({'; '.join(decision.reasons)})",
            remedy="train a better candidate",
        )
    limit = rule_reaches(version, decision)
    if limit is not None and rank(state) <= rank(limit):
        return
    if not any(event.upto is not None and rank(state) <= rank(event.upto) for event in approvals):
        rule = version.release.authorised_rule
        raise TransitionError(
            culprit,
            seen=decision.state,
            rule=f"the owner's rule ({rule}) does not reach it, so a person must have approved this decision up to it",
            remedy=f"`ratchet approve {version.id[:12]} --to {state} --by NAME --reason TEXT`",
        )


def refuse_stale(version: Version, decision: Decision, serving: Version | None) -> None:
    """Raise TransitionError where production no longer holds what the candidate was compared with.

    Args:
        version: the candidate.
        decision: the decision that is to carry it; it names its incumbent.
        serving: what is in production now; None: nothing, so the baseline serves.
    """
    against = (decision.incumbent_version or "")[:12] or decision.incumbent_digest[:12]
    if serving is None and decision.incumbent_version is None:
        return
    if serving is not None and decision.incumbent_digest == serving.policy.digest:
        return
    now = (
        f"{serving.label}, which the candidate was not compared with" if serving else "no version: the baseline serves"
    )
    raise TransitionError(
        f"decision on {version.label} against {decision.incumbent} ({against})",
        rule=f"production now holds {now}",
        remedy="evaluate a candidate against what is there and decide anew: the next run of the experiment does",
    )


def refuse_approver(version: Version, decision: Decision, by: str, reason: str, limit: State) -> None:
    """Raise TransitionError where `by` may not approve, or this cannot be approved."""
    culprit, remedy = f"approval of {version.label}", "have another person approve, or reject it"
    if limit not in PROMOTIONS:
        raise TransitionError(
            culprit, seen=str(limit), rule=f"it reaches one of {', '.join(PROMOTIONS)}", remedy="name one of them"
        )
    if not reason.strip():
        raise TransitionError(culprit, rule="it needs a reason", remedy="say why in words")
    if decision.state == "reject":
        raise TransitionError(
            culprit,
            seen="reject",
            rule=f"the gate rejected it and nobody may approve that ({'; '.join(decision.reasons)})",
            remedy="train a better candidate, or have the owner change the manifest (a new experiment)",
        )
    if by.strip().casefold().startswith(RULE):
        raise TransitionError(culprit, seen=by, rule="it is given by a person", remedy=remedy)
    if version.release.four_eyes and same_person(by, version.author):
        raise TransitionError(
            culprit, seen=by, rule="the manifest asks for four eyes and this is the author of the run", remedy=remedy
        )


def same_person(one: str, other: str) -> bool:
    """Whether two names are the same but for case, spaces, signs that do not show, and forms of the same letters."""
    return _normal(one) == _normal(other)


def _normal(name: str) -> str:
    shown = "".join(sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf")
    return " ".join(shown.casefold().split())
