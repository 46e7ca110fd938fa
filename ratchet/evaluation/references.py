"""Reference calls: what a task says that a right solution calls, and how many of an episode's calls match.

A task carries them in its payload, `{"reference_calls": [{"name": ..., "arguments": {...}}, ...]}`, where the
environment knows a right sequence of calls (as in tau-bench); most tasks carry none, because many ways lead to the
work. The policy never reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from ratchet.contracts.attempt import CallStep
from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.environment import Task, ToolCall
from ratchet.errors import EvaluationError

KEY = "reference_calls"
_CALLS = TypeAdapter(tuple[ToolCall, ...])


def reference_calls(task: Task) -> tuple[ToolCall, ...] | None:
    """Return what the task says that a right solution calls, or None. Raises EvaluationError where it is no calls."""
    if KEY not in task.payload:
        return None
    try:
        return _CALLS.validate_python(task.payload[KEY])
    except ValidationError as error:
        raise EvaluationError(
            f"{KEY} of task {task.task_id!r}",
            rule=f"it must be a list of calls, each with name and arguments ({error.errors()[0]['msg']})",
            remedy="mend the environment's tasks, and lock them anew",
        ) from None


def matched_calls(task: Task, steps: Sequence[CallStep]) -> int | None:
    """Count the calls of an episode that match a reference call: same tool, same arguments, and it succeeded.

    Each reference call is matched once, in any order: to repeat a right call is not to be right twice.

    Args:
        task: what was attempted.
        steps: the calls with their answers.

    Returns:
        The count, or None where the task carries no reference calls.
    """
    references = reference_calls(task)
    if references is None:
        return None
    left = Counter(map(_key, references))
    made = Counter(_key(step.call) for step in steps if step.result.status == "ok")
    return (left & made).total()


def _key(call: ToolCall) -> tuple[str, str]:
    return call.name, canonical_json(call.arguments)
