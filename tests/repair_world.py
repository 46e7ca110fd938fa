"""The `repair` environment as the tests open it: a real sandbox, all its tools, tasks of the first problems.

A conftest that imports the fixtures shares them among the tests of its folder, once per session.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from ratchet.contracts.environment import ActionLimits, Task
from ratchet.contracts.manifest import EnvironmentSection
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.catalogue import CatalogueSettings, build
from ratchet.environments.repair.episode import TOOLS
from ratchet.environments.repair.problems import Problem, human_eval
from ratchet.loop.context import SANDBOX_LIMITS
from ratchet.sandbox import MemoSandbox, Sandbox, open_sandbox

PROBLEMS = 12


def section(**settings: Any) -> EnvironmentSection:
    return EnvironmentSection(
        name="repair",
        version="1",
        tools=tuple(TOOLS),
        limits=ActionLimits(max_calls=20, max_tokens_per_turn=3, episode_timeout_s=60),
        settings=settings,
    )


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
