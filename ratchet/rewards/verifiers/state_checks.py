"""The final state is the declared one: which files there are, what they hold, and that nothing else changed.

An environment whose state is no file (a database, a ticket queue) hands it in as a JSON file, e.g. `state.json`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.model import Contract
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.verifiers.comparing import Unread, difference, pointed, read_json, same_text
from ratchet.rewards.verifiers.declared import declared


class StateCheck(Contract):
    """One thing that must hold of one file."""

    file: str = Field(description="Delivered file.")
    holds: Literal["present", "absent", "text", "contains", "json", "json_subset"] = Field(
        description="Present; absent; the normalised text equals `value`; the text contains `value`; the JSON at "
        "`pointer` equals `value`, or contains it."
    )
    value: Any = Field(default=None, description="What is expected, for the last four.")
    pointer: str = Field(default="", pattern=r"^(/.*)?$", description="JSON pointer (RFC 6901) into the file.")
    absolute: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="Numbers may differ by this much.")


class StateChecks(Contract):
    """What a task declares under `verification.state_checks`."""

    checks: tuple[StateCheck, ...] = Field(min_length=1, description="All of them must hold.")
    closed: bool = Field(default=True, description="Files that no check names must be as the task had them.")


def state_checks(attempt: Attempt) -> Scored | Invalid:
    """Every declared check holds and, where the state is closed, nothing else changed."""
    want = declared(attempt, "state_checks", StateChecks)
    files, failed = attempt.deliverable.files, []
    for check in want.checks:
        why = _fails(check, files.get(check.file))
        if why is not None:
            failed.append(f"{check.file} {check.holds}: {why}")
    if want.closed:
        before: dict[str, str] = attempt.task.payload.get("files", {})
        others = (before.keys() | files.keys()) - {check.file for check in want.checks}
        failed += [f"{name} changed" for name in sorted(others) if before.get(name) != files.get(name)]
    return Scored(value=float(not failed), evidence={"checks": len(want.checks), "failed": failed})


def _fails(check: StateCheck, text: str | None) -> str | None:
    """Return why a check does not hold, or None."""
    if text is None or check.holds in ("present", "absent"):
        holds = (text is None) == (check.holds == "absent")
        return None if holds else "no such file" if text is None else "it is there"
    if check.holds == "contains":
        return None if check.value in text else "not contained"
    if check.holds == "text":
        return None if same_text(text, check.value) else "another text"
    try:
        got = pointed(read_json(text), check.pointer)
    except Unread as error:
        return str(error)
    return difference(got, check.value, absolute=check.absolute, subset=check.holds == "json_subset", at=check.pointer)
