"""The contract of every sandbox backend: what goes in, what comes out, and which limits hold.

A `Program` is hostile module text with trusted tests; an `Execution` says per test what happened and which limit was
hit. Whatever a program does is data: an `Execution`, never an exception. `SandboxError` means that the sandbox itself
failed, so a program cannot make its own episode invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Literal, NamedTuple, Protocol, Self

from pydantic import Field, field_validator, model_validator

from ratchet.contracts.model import Contract, revalidated
from ratchet.errors import SandboxError
from ratchet.sandbox.recall import ByIdentity

Status = Literal["passed", "failed", "error", "not_run"]
Limit = Literal["cpu", "wall", "memory", "processes", "output", "disk", "killed", "exited", "protocol"]


@lru_cache(maxsize=4096)
def _compiles(source: str) -> str:
    try:
        compile(source, "<test>", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ValueError(f"trusted tests must compile: line {error.lineno}: {error.msg}") from None
    return source


class TestCase(Contract):
    """One trusted test. It passes when its source runs to the end without raising."""

    __test__ = False  # the name looks like a test class to pytest

    name: str = Field(description="name that the outcome carries")
    source: str = Field(description="trusted Python; calls `candidate(...)` and other names that the program defines")

    _checked = field_validator("source")(_compiles)


class Program(Contract):
    """Hostile module text, the function under test, and the trusted tests that judge it."""

    source: str = Field(description="hostile Python module text")
    entry_point: str = Field(description="name of the function that tests call `candidate`")
    tests: tuple[TestCase, ...] = Field(min_length=1, description="trusted tests, run in this order in one process")
    support: str = Field(
        default="",
        description="trusted Python run before each test in the checker; what it defines wins over the program's names",
    )
    repeatable: bool = Field(
        default=True, description="the same execution gives the same outcome, so that it may be remembered"
    )

    _checked = field_validator("support")(_compiles)


class Limits(Contract):
    """What one execution may use. A program that wants more is ended and the limit is reported."""

    cpu_s: float = Field(default=1.0, gt=0, le=3600, description="processor seconds of all processes together")
    wall_s: float = Field(default=12.0, gt=0, le=7200, description="seconds from fork to end; at least 3 x cpu_s")
    memory_mb: int = Field(default=256, ge=32, description="MiB of address space per process and of memory for all")
    processes: int = Field(default=16, ge=1, le=512, description="processes and threads of the program at one time")
    output_kb: int = Field(default=64, ge=1, description="KiB that the program may print")
    disk_mb: int = Field(default=16, ge=1, description="MiB in each of /tmp and /dev/shm")
    value_kb: int = Field(default=1024, ge=1, description="KiB of one returned value on the wire")

    @model_validator(mode="after")
    def _wall_leaves_room(self) -> Self:
        if self.wall_s < 3 * self.cpu_s:
            raise ValueError(f"wall_s {self.wall_s} must be at least 3 x cpu_s {self.cpu_s}: machines are shared")
        return self


class TestOutcome(Contract):
    """What one test found."""

    __test__ = False

    name: str = Field(description="name of the test")
    status: Status = Field(
        description="passed; failed: its assertion did not hold; error: anything else was raised; "
        "not_run: the program ended or a limit was hit before the test finished"
    )
    exception: str | None = Field(default=None, description="type name of what was raised")
    last_value: str | None = Field(default=None, description="clipped repr of the last value the program returned")


class Execution(Contract):
    """What happened when a program ran against its tests."""

    outcomes: tuple[TestOutcome, ...] = Field(description="one per test, in order")
    limit: Limit | None = Field(
        default=None,
        description="limit that was hit; killed: died by a signal; exited: left early; protocol: broke its pipe",
    )
    output: str = Field(default="", description="tail of what the program printed")
    cpu_s: float = Field(ge=0, allow_inf_nan=False, description="processor seconds of all processes, measured")
    wall_s: float = Field(ge=0, allow_inf_nan=False, description="seconds from fork to end, measured")

    @property
    def passed(self) -> bool:
        """True when every test passed and no limit was hit."""
        return self.limit is None and all(outcome.status == "passed" for outcome in self.outcomes)


def answered(program: Program, execution: object, *, whole: bool = False) -> Execution:
    """Return what a sandbox handed over for a program, checked.

    Args:
        program: what it was to execute.
        execution: what came back.
        whole: refuse one that has not one outcome per test, too. A verifier does not ask for it: to it, a test that
            is missing has failed.

    Raises:
        SandboxError: it is no execution, or holds figures that are none.
    """
    try:
        checked = _checked(execution)
        if whole and len(checked.outcomes) != len(program.tests):
            raise ValueError(f"{len(checked.outcomes)} outcomes for {len(program.tests)} tests")
    except (TypeError, ValueError) as error:
        raise SandboxError(
            f"execution of {program.entry_point}",
            seen=str(error),
            rule="a sandbox hands over an execution with one outcome per test",
            remedy="run `ratchet doctor`, or repair the sandbox's backend",
        ) from None
    return checked


_checked = ByIdentity[object, Execution](partial(revalidated, Execution))
"""An execution that was checked: its copy, whatever became of the original since."""


class Finding(NamedTuple):
    """One thing `ratchet doctor` probed."""

    name: str
    ok: bool
    detail: str
    remedy: str


class Sandbox(Protocol):
    """What a backend offers. Safe to use from several threads; not across a fork."""

    limits: Limits
    slots: int

    def run(self, program: Program) -> Execution:
        """Execute one program. Raises SandboxError when the sandbox itself fails, twice."""

    def run_many(self, programs: Sequence[Program]) -> list[Execution]:
        """Execute programs on all slots at once; the results are in the programs' order."""

    def close(self) -> None:
        """End every process and remove every trace on the host. May be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
