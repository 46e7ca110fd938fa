"""Candidates that could not be made: a method found nothing to learn from, and the rest of the run goes on.

The reason is kept where the candidate's policy would stand, and is part of the evidence of a decision. Until the
held-out evaluation is opened, another launch tries again, since more logs may have come in; from then on it is settled.
"""

from __future__ import annotations

from ratchet.contracts.manifest import MethodSection
from ratchet.errors import NothingToLearn, TrainingError
from ratchet.loop.context import Run
from ratchet.policies.record import LeftOut, read_left_out, seal_left_out
from ratchet.progress import say


def place(run: Run, name: str) -> str:
    """Where the record of a candidate that was left out is."""
    return run.name("left_out", f"{name}.json")


def left_out(run: Run, name: str) -> LeftOut | None:
    """Why a candidate was left out; None where it was made, or not tried yet."""
    if run.store.exists(run.name("policies", name, "policy.json")) or not run.store.exists(place(run, name)):
        return None
    return read_left_out(run.store.read(place(run, name)), place(run, name))


def all_left_out(run: Run) -> list[LeftOut]:
    """Every candidate that was left out, in the order of the manifest."""
    found = [left_out(run, section.name) for section in run.manifest.methods]
    return [one for one in found if one is not None]


def made(run: Run) -> list[MethodSection]:
    """The candidates of the manifest but for those that were left out; one that was not tried yet is among them."""
    return [section for section in run.manifest.methods if left_out(run, section.name) is None]


def leave_out(run: Run, section: MethodSection, error: NothingToLearn) -> LeftOut:
    """Keep why a candidate is left out, in the place of what an earlier launch found."""
    where = place(run, section.name)
    run.store.delete(where)
    run.store.create(where, seal_left_out(section.name, section.method, section.start, error))
    found = read_left_out(run.store.read(where), where)
    say(f"  {section.name} is left out: {found.reason}")
    return found


def refuse_missing_start(run: Run, section: MethodSection) -> None:
    """Raise NothingToLearn where the candidate that a method starts from was left out."""
    if left_out(run, section.start) is not None:
        raise NothingToLearn(
            f"start of {section.name}",
            seen="no start",
            rule="the candidate that it starts from was left out",
            remedy="see why that one was, or let it start from `base`",
        )


def refuse_none_left(run: Run) -> None:
    """Return where a candidate is left that may be released.

    Raises:
        TrainingError: naming every candidate that was left out, with its reason.
    """
    if any(section.candidate for section in made(run)):
        return
    reasons = "; ".join(f"{one.name!r} {one.reason}" for one in all_left_out(run))
    raise TrainingError(
        f"candidates of {run.manifest.run_id}",
        seen=f"0 of {len(run.manifest.methods)}",
        rule=f"at least one that may be released must be made ({reasons or 'every one has `candidate: false`'})",
        remedy="give a method something to learn from, and run again",
    )
