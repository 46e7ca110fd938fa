"""What a task declares for its verifiers: `payload["verification"][<name of the verifier>]`, validated.

The payload is the verifier's side: an episode shows none of it to the policy. A task without the declaration, or with
one that does not validate, is the task's mistake and makes the score invalid, never 0.
"""

from __future__ import annotations

from typing import TypeVar

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.model import Contract

T = TypeVar("T", bound=Contract)


def declared(attempt: Attempt, name: str, kind: type[T]) -> T:
    """Return what the task declares for the verifier `name`.

    Raises:
        ValueError: it declares nothing, or what is not a `kind`.
    """
    section = attempt.task.payload.get("verification", {})
    if name not in section:
        raise ValueError(f"task {attempt.task.task_id} declares nothing under verification.{name}")
    return kind.model_validate(section[name])
