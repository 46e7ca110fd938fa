"""What a task runs in: the environment, its episodes and the permissions that learning cannot widen.

`EnvironmentSpec` is part of the manifest's digest. A harness that asks for a tool or a limit beyond it is refused
before evaluation, and nothing that trains can write to it. Verification is not in here: the verifier's files are not
reachable from an episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from pydantic import Field

from ratchet.contracts.canonical import digest
from ratchet.contracts.model import Contract


class ToolSchema(Contract):
    """One tool that an episode may call."""

    name: str = Field(min_length=1, description="Name the policy calls it by.")
    description: str = Field(description="What it does, as the policy reads it.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="JSON schema of the arguments.")


class ActionLimits(Contract):
    """What one episode may spend."""

    max_calls: int = Field(ge=1, description="Tool calls per episode; the next one is refused.")
    max_tokens_per_turn: int = Field(ge=1, description="Tokens the policy may sample in one turn.")
    episode_timeout_s: float = Field(gt=0, description="Wall clock of one episode, in seconds.")


class Prices(Contract):
    """Price list: what the units of a run cost, in one currency."""

    currency: str = Field(min_length=1, description="ISO 4217 code, e.g. USD.")
    per_million_input_tokens: float = Field(ge=0, description="Price of 1e6 tokens read.")
    per_million_output_tokens: float = Field(ge=0, description="Price of 1e6 tokens sampled.")
    per_sandbox_s: float = Field(ge=0, description="Price of one second of sandbox CPU.")
    per_verifier_s: float = Field(ge=0, description="Price of one second of verification.")
    per_judge_call: float = Field(ge=0, description="Price of one judged item.")
    per_trainer_hour: float = Field(ge=0, description="Price of one hour of the training machine.")


class EnvironmentSpec(Contract):
    """The permissions of an experiment, and what identifies its environment."""

    name: str = Field(min_length=1, description="Entry point name in the group `ratchet.environments`.")
    version: str = Field(
        min_length=1, description="Version of the environment; rows of two versions are not comparable."
    )
    tools: tuple[ToolSchema, ...] = Field(description="Tools an episode may call, with their argument schemas.")
    limits: ActionLimits = Field(description="Action limits of one episode.")
    network: Literal["none"] = Field(default="none", description="Network reachable from an episode.")
    segments: tuple[str, ...] = Field(description="Every segment a task may carry.")

    @property
    def digest(self) -> str:
        """SHA-256 of the permissions."""
        return digest(self)


class Searchable(Contract):
    """What an environment leaves to the harness: nothing of it is a permission."""

    options: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict, description="Values that a harness may choose, by option; the first one is the default."
    )
    approval_rules: tuple[str, ...] = Field(default=(), description="Approval rules that are worth trying here.")


class Task(Contract):
    """One unit of work. Frozen data; behaviour lives in the environment."""

    task_id: str = Field(min_length=1, description="Unique within the environment.")
    prompt: str = Field(description="The full task text: the report and all the code it is about.")
    repo: str = Field(min_length=1, description="Where the task comes from; tasks of one repo share a split.")
    issue_id: str = Field(min_length=1, description="The report that the task answers.")
    segment: str = Field(min_length=1, description="The slice it is reported under.")
    payload: dict[str, Any] = Field(
        default_factory=dict, description="What the environment needs to open it, as plain JSON."
    )
    environment: str = Field(description="Name of its environment.")
    environment_version: str = Field(description="Version of its environment.")

    @property
    def digest(self) -> str:
        """SHA-256 of the whole task; what a split lock pins."""
        return digest(self)


class Message(Contract):
    """One message as the policy sees it."""

    role: Literal["system", "user", "assistant", "tool"] = Field(description="Who speaks.")
    content: str = Field(description="The text.")


class ToolCall(Contract):
    """A call the policy made. `malformed` carries the text that did not parse as a call."""

    name: str = Field(description="Tool name; empty where the text did not parse.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="Arguments by name.")
    malformed: str | None = Field(default=None, description="The text that is no call, or None.")


class ToolResult(Contract):
    """What came back. A refused call is a result, never an exception."""

    content: str = Field(description="What the policy reads.")
    status: Literal["ok", "error", "refused", "malformed"] = Field(description="How the call went.")
    violation: str | None = Field(default=None, description="The policy rule it broke, or None.")
    honeypot: str | None = Field(
        default=None, description="The kind of exploit that the call is, where no honest solution makes it; or None."
    )
    ends_episode: bool = Field(default=False, description="Whether the episode is over.")
    sandbox_s: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="Sandbox CPU seconds it took.")


class Deliverable(Contract):
    """What the verifiers judge."""

    submitted: bool = Field(description="Whether the policy handed it in, rather than running out of calls.")
    files: dict[str, str] = Field(description="Final content of the files the policy could change, by name.")
    visible_passed: bool | None = Field(
        default=None, description="Result of the tests the policy could see, if they ran last."
    )
    touched: tuple[str, ...] = Field(default=(), description="Names of the files that differ from the task's.")


class Verdict(Contract):
    """Hidden verification of one deliverable, made apart from the agent."""

    target_passed: bool = Field(description="The tests that show the bug pass.")
    regression_passed: bool = Field(description="The tests that passed before still pass.")
    tests: tuple[str, ...] = Field(description="Digests of the tests that ran, in order.")
    failed: str | None = Field(default=None, description="The first failing test, named without revealing it.")
    verifier_s: float = Field(ge=0, allow_inf_nan=False, description="CPU seconds of verification.")


class Episode(Protocol):
    """One attempt at a task; a context manager with its own deadline."""

    def observation(self) -> list[Message]:
        """What the policy sees first."""

    def call(self, call: ToolCall) -> ToolResult:
        """Execute a call, or refuse it with a result."""

    def deliverable(self) -> Deliverable:
        """What the verifiers judge."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Environment(Protocol):
    """Where tasks come from and episodes run."""

    spec: EnvironmentSpec

    def tasks(self) -> Iterable[Task]:
        """Every task, in a fixed order."""

    def aliases(self) -> dict[str, str]:
        """Repos that are another one under a second name (forks, mirrors, shared code): alias to the first name."""

    def open(self, task: Task, seed: int) -> Episode:
        """Open an episode. Raises SandboxError where the sandbox fails; that makes the episode invalid.

        This, every call of an episode and `verify` are called from several threads, though for one episode from one at
        a time, and are left behind where they do not come back in time; closing the episode may be what ends them.

        One that states `bounded = True` promises that `call` always comes back by itself, within the limits that it
        sets to what it runs, and that it ends neither thread nor process: nobody watches such a call then.

        An environment that states `searchable` (a `Searchable`) with options takes them as the keyword `options`, by
        name, where a harness chose any.
        """

    def verify(self, task: Task, deliverable: Deliverable) -> Verdict:
        """Run the hidden tests, in a sandbox of their own. Raises SandboxError where that fails."""

    def probes(self, task: Task) -> dict[str, Deliverable]:
        """Deliverables for the exploitation audit, by probe name: an honest one and one per honeypot."""


class SearchableEnvironment(Environment, Protocol):
    """An environment of which a harness may choose something."""

    searchable: Searchable

    def open(self, task: Task, seed: int, options: Mapping[str, str] = ...) -> Episode:
        """Open an episode as `Environment.open` does, under the options that the harness chose."""


def searchable(environment: Environment) -> Searchable:
    """What an environment leaves to the harness; nothing where it does not say."""
    return getattr(environment, "searchable", Searchable())


def bounded(environment: Environment) -> bool:
    """Whether the tool calls of an environment always come back by themselves; not where it does not say."""
    return getattr(environment, "bounded", False) is True
