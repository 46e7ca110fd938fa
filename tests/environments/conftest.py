"""A real sandbox, the environment with all its tools, and tasks of the first problems, shared by the session."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from repair_world import section

from ratchet.contracts.environment import Task
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.catalogue import CatalogueSettings, build
from ratchet.environments.repair.problems import Problem, human_eval
from ratchet.loop.context import SANDBOX_LIMITS
from ratchet.sandbox import MemoSandbox, Sandbox, open_sandbox

PROBLEMS = 12


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with MemoSandbox(open_sandbox(limits=SANDBOX_LIMITS)) as opened:
        yield opened


@pytest.fixture(scope="session")
def problems() -> list[Problem]:
    return list(human_eval())


@pytest.fixture(scope="session")
def environment(sandbox: Sandbox) -> RepairEnvironment:
    return RepairEnvironment(section(), sandbox, seed=1)


@pytest.fixture(scope="session")
def tasks(problems: list[Problem], sandbox: Sandbox) -> list[Task]:
    settings = CatalogueSettings(tasks_per_problem=3)
    return list(build(islice(problems, PROBLEMS), settings, sandbox, seed=1, name="repair", version="1"))
