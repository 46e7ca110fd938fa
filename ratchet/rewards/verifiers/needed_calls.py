"""A step verifier for any environment: the call was understood, permitted, worked, and was no repetition.

A call that repeats the one before it and gets the same answer told nothing and changed nothing. More is not claimed
without knowing the tools; an environment that knows its own registers a finer one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.score import Invalid, Scored


def needed_calls(attempt: Attempt) -> Sequence[Scored] | Invalid:
    """Return 1 for a call that worked and 0 for one that was wasted, each with the reason."""
    scores, before = [], None
    for step in attempt.steps or ():
        what = (step.call, step.result.content, step.result.status)
        if step.result.status != "ok":
            why = step.result.violation or step.result.status
        elif what == before:
            why = "redundant: the same call and answer as the step before"
        else:
            why = "needed"
        scores.append(Scored(value=float(why == "needed"), evidence={"call": step.call.name, "why": why}))
        before = what
    return scores
