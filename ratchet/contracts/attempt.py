"""One attempt as the reward reads it: the task, what was handed in, its verdict, and the calls that led there."""

from __future__ import annotations

from pydantic import Field

from ratchet.contracts.environment import Deliverable, EnvironmentSpec, Task, ToolCall, ToolResult, Verdict
from ratchet.contracts.model import Contract
from ratchet.contracts.score import Invalid


class CallStep(Contract):
    """One call of an episode with its answer."""

    call: ToolCall = Field(description="The call, one that did not parse included.")
    result: ToolResult = Field(description="What came back.")


class Attempt(Contract):
    """What verifiers, gates and detectors read. They change nothing in it."""

    task: Task = Field(description="What was asked; what verifiers need to know is in its payload.")
    deliverable: Deliverable = Field(description="What was handed in.")
    verdict: Verdict | Invalid = Field(description="The hidden verification, or why there is none.")
    steps: tuple[CallStep, ...] | None = Field(
        default=None, description="The calls of the episode in order; None for a deliverable that no episode made."
    )
    permissions: EnvironmentSpec | None = Field(
        default=None, description="What the environment permits; None where that is not known."
    )
    canaries: tuple[str, ...] = Field(default=(), description="Strings of the experiment that nothing may carry out.")
