"""The trajectory log: ATIF v1.8 models, and Ratchet's own fields under `extra.ratchet`.

ATIF (Agent Trajectory Interchange Format) is the interchange and storage format. What it has no field for (tenant,
grant, task, versions, seed, approvals, deliverable, score, timings, usage) is `RatchetExtra`. The rules that a
trajectory must meet before a trainer sees it are in `training.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Deliverable
from ratchet.contracts.model import Contract
from ratchet.contracts.score import Score, Unscored

ATIF_VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))
Extra = dict[str, Any] | None


class MediaSource(Contract):
    """Image or audio kept as a file or at a URL."""

    media_type: str = Field(pattern=r"^(image|audio)/[a-z0-9.+-]+$", description="MIME type.")
    path: str = Field(description="Relative or absolute path, or URL.")
    duration_sec: float | None = Field(default=None, ge=0, description="Duration of audio in seconds.")


class ContentPart(Contract):
    """One part of a multimodal message."""

    type: Literal["text", "image", "audio"] = Field(description="Kind of content.")
    text: str | None = Field(default=None, description="The text, where type is text.")
    source: MediaSource | None = Field(default=None, description="The media, where type is image or audio.")

    @model_validator(mode="after")
    def _holds_what_it_says(self) -> ContentPart:
        if (self.type == "text") != (self.text is not None) or (self.type == "text") == (self.source is not None):
            raise ValueError("a text part holds text, an image or audio part holds a source, and neither holds both")
        return self


Content = str | list[ContentPart]


class CallRecord(Contract):
    """A tool call as logged."""

    tool_call_id: str = Field(description="Unique within the trajectory.")
    function_name: str = Field(description="Tool that was called.")
    arguments: dict[str, Any] = Field(description="Arguments; may be empty.")
    extra: Extra = Field(default=None, description="Call-level metadata.")


class SubagentRef(Contract):
    """Reference to a delegated trajectory."""

    trajectory_id: str | None = Field(default=None, description="Key of an embedded trajectory.")
    session_id: str | None = Field(default=None, description="Run of the subagent; informational.")
    trajectory_path: str | None = Field(default=None, description="File that holds it.")
    extra: Extra = Field(default=None, description="Reference-level metadata.")

    @model_validator(mode="after")
    def _resolvable(self) -> SubagentRef:
        if self.trajectory_id is None and self.trajectory_path is None:
            raise ValueError("a subagent reference needs trajectory_id or trajectory_path")
        return self


class ObservationResult(Contract):
    """One result inside an observation."""

    source_call_id: str | None = Field(default=None, description="The call it answers.")
    content: Content | None = Field(default=None, description="What came back.")
    subagent_trajectory_ref: list[SubagentRef] | None = Field(default=None, description="Delegated trajectories.")
    extra: Extra = Field(default=None, description="Result-level metadata.")


class Observation(Contract):
    """What the environment answered to a step."""

    results: list[ObservationResult] = Field(description="Results, in order.")


class StepMetrics(Contract):
    """Usage and confidence of one step."""

    prompt_tokens: int | None = Field(default=None, description="Tokens read, cached ones included.")
    completion_tokens: int | None = Field(default=None, description="Tokens sampled.")
    cached_tokens: int | None = Field(default=None, description="Tokens of the prompt that were cached.")
    cost_usd: float | None = Field(default=None, description="Cost of the call in USD.")
    prompt_token_ids: list[int] | None = Field(default=None, description="Ids the engine read.")
    completion_token_ids: list[int] | None = Field(default=None, description="Ids the policy sampled.")
    logprobs: list[float] | None = Field(default=None, description="Log-probability of each sampled id.")
    extra: Extra = Field(default=None, description="Other metrics.")


class Step(Contract):
    """One turn of system, user or agent."""

    step_id: int = Field(ge=1, description="Ordinal, from 1, without gaps.")
    timestamp: str | None = Field(default=None, description="ISO 8601.")
    source: Literal["system", "user", "agent"] = Field(description="Who speaks.")
    model_name: str | None = Field(default=None, description="Model of this turn, where it differs from the agent's.")
    reasoning_effort: str | float | None = Field(default=None, description="Effort setting.")
    message: Content = Field(description="The text or its parts; may be empty.")
    reasoning_content: str | None = Field(default=None, description="Explicit reasoning.")
    tool_calls: list[CallRecord] | None = Field(default=None, description="Calls the agent made.")
    observation: Observation | None = Field(default=None, description="What came back.")
    metrics: StepMetrics | None = Field(default=None, description="Usage of this step.")
    is_copied_context: bool | None = Field(
        default=None, description="Copied from another trajectory; never trained on."
    )
    llm_call_count: int | None = Field(default=None, ge=0, description="Inferences this step stands for.")
    extra: Extra = Field(default=None, description="Step-level metadata.")


class Agent(Contract):
    """The agent that acted."""

    name: str = Field(description="Agent system.")
    version: str = Field(description="Its version.")
    model_name: str | None = Field(default=None, description="Default model.")
    tool_definitions: list[dict[str, Any]] | None = Field(default=None, description="Tools, as function schemas.")
    extra: Extra = Field(default=None, description="Agent configuration.")


class FinalMetrics(Contract):
    """Totals over the trajectory."""

    total_prompt_tokens: int | None = Field(default=None, description="Sum of prompt tokens.")
    total_completion_tokens: int | None = Field(default=None, description="Sum of completion tokens.")
    total_cached_tokens: int | None = Field(default=None, description="Sum of cached tokens.")
    total_cost_usd: float | None = Field(default=None, description="Cost in USD.")
    total_steps: int | None = Field(default=None, ge=0, description="Number of steps.")
    extra: Extra = Field(default=None, description="Other totals.")


class Approval(Contract):
    """An approval checkpoint inside a trajectory."""

    by: str = Field(min_length=1, description="Person or rule that decided.")
    decision: Literal["approved", "refused"] = Field(description="What was decided.")
    at: str = Field(description="ISO 8601 with zone.")
    subject: str = Field(description="What it was about: a tool call id or the deliverable.")


class RatchetExtra(Contract):
    """Ratchet's own fields, stored under `extra.ratchet` of an ATIF trajectory."""

    tenant: str = Field(description="Whose data this is.")
    grant_id: str = Field(description="Grant it came in under.")
    task_id: str | None = Field(default=None, description="Task that was attempted.")
    repo: str | None = Field(default=None, description="Origin of the task.")
    issue_id: str | None = Field(default=None, description="Report the task answers.")
    segment: str | None = Field(default=None, description="Slice of the task.")
    environment: str | None = Field(default=None, description="Environment name.")
    environment_version: str | None = Field(default=None, description="Environment version.")
    policy: str | None = Field(default=None, description="Name of the policy or scripted agent.")
    policy_digest: str | None = Field(default=None, description="Digest of checkpoint and harness.")
    seed: int | None = Field(default=None, description="Seed of the episode.")
    approvals: list[Approval] = Field(default_factory=list, description="Approval checkpoints.")
    deliverable: Deliverable | None = Field(default=None, description="What the episode handed in.")
    score: Score = Field(default_factory=Unscored, description="Tri-state outcome.")
    violations: list[str] = Field(default_factory=list, description="Policy rules that were broken.")
    calls: int | None = Field(default=None, ge=0, description="Tool calls made, refused ones included.")
    ok_calls: int | None = Field(
        default=None, ge=0, description="Calls that were well-formed, permitted and succeeded."
    )
    sandbox_s: float | None = Field(default=None, ge=0, description="Sandbox CPU seconds.")
    latency_s: float | None = Field(default=None, ge=0, description="Wall clock of the episode, seconds.")
    anomalies: list[str] = Field(default_factory=list, description="Quirks of the source that were kept, by code.")
    source: str | None = Field(default=None, description="Name of the file it was read from, with the record number.")


class Trajectory(Contract):
    """The complete log of an episode, in ATIF v1.8."""

    schema_version: Annotated[str, Field(pattern=r"^ATIF-v1\.[0-8]$")] = Field(
        default="ATIF-v1.8", description="ATIF version."
    )
    session_id: str | None = Field(default=None, description="Run it belongs to.")
    trajectory_id: str | None = Field(default=None, description="Identity of this document.")
    agent: Agent = Field(description="Who acted.")
    steps: list[Step] = Field(min_length=1, description="The turns, in order.")
    notes: str | None = Field(default=None, description="Notes of the producer.")
    final_metrics: FinalMetrics | None = Field(default=None, description="Totals.")
    continued_trajectory_ref: str | None = Field(default=None, description="File that continues this one.")
    extra: Extra = Field(default=None, description="Root metadata; `extra.ratchet` is `RatchetExtra`.")
    subagent_trajectories: list[Trajectory] | None = Field(default=None, description="Embedded trajectories.")

    @model_validator(mode="after")
    def _consistent(self) -> Trajectory:
        if [step.step_id for step in self.steps] != list(range(1, len(self.steps) + 1)):
            raise ValueError("step_id must run from 1 without gaps")
        known: set[str] = set()
        for step in self.steps:
            for call in step.tool_calls or []:
                if call.tool_call_id in known:
                    raise ValueError(f"tool_call_id {call.tool_call_id!r} occurs twice in one trajectory")
                known.add(call.tool_call_id)
            for result in step.observation.results if step.observation else []:
                if result.source_call_id is not None and result.source_call_id not in known:
                    raise ValueError(f"result answers the unknown call {result.source_call_id!r}")
        return self

    @property
    def ratchet(self) -> RatchetExtra:
        """Ratchet's fields. Raises ValidationError where they are missing or wrong."""
        return RatchetExtra.model_validate((self.extra or {}).get("ratchet", {}))

    def with_ratchet(self, extra: RatchetExtra) -> Trajectory:
        """Return a copy that carries `extra`, with its own identity."""
        merged = {**(self.extra or {}), "ratchet": extra.model_dump(mode="json")}
        return self.model_copy(update={"extra": merged})

    @property
    def digest(self) -> str:
        """SHA-256 of the whole document."""
        return digest(self.model_dump(mode="json", exclude_none=True))


def text_of(content: Content | None) -> str:
    """Return the text of a message or result; media parts appear as `[image: path]`."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(
        part.text if part.text is not None else f"[{part.type}: {part.source.path if part.source else ''}]"
        for part in content
    )
