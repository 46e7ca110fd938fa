"""Admission of the verifiers of a run: each judges a sample twice before the reward is audited or trains anything.

The sample is made by the environment itself: the probes of a few training tasks and, for the scores of single steps,
episodes of the scripted agents that the manifest names. The hidden tests run again on a sandbox without a memory.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.environment import Deliverable, Environment, Task, Verdict
from ratchet.contracts.score import Invalid
from ratchet.errors import SandboxError
from ratchet.loop.context import Run
from ratchet.progress import task as progress
from ratchet.rewards.compose import step_parts
from ratchet.rewards.verifiers.admission import Admission, admit, reopen_admission
from ratchet.rollouts.judged import calls_of
from ratchet.rollouts.scripted import play

ADMISSION_TASKS = 4
PLACE = "verifier_admission.json"


def admitted_verifiers(run: Run) -> Admission:
    """Admit every verifier of the run's reward, once.

    Raises:
        RatchetError: naming each one that disagrees with itself, changes what it reads, or scores nothing.
    """

    def make() -> bytes:
        tasks = run.training_tasks()
        chosen = random.Random(f"{run.manifest.seed}/admission").sample(tasks, min(ADMISSION_TASKS, len(tasks)))
        with progress(f"admission of verifiers on {len(chosen)} tasks"):
            sample = [attempt for task in chosen for attempt in _attempts(run, task)]
            return admit(sample, run.manifest.reward, verify=run.environment_on(run.sandbox.inner).verify).to_bytes()

    data, _ = run.once(PLACE, make)
    return reopen_admission(data, run.name(PLACE))


def _attempts(run: Run, task: Task) -> Iterator[Attempt]:
    """Yield what is judged at admission: the probes of a task, and episodes where steps are scored."""
    environment, canaries = run.environment, run.manifest.reward.canaries
    for probe in environment.probes(task).values():
        yield Attempt(
            task=task,
            deliverable=probe,
            verdict=_verdict(environment, task, probe),
            permissions=environment.spec,
            canaries=canaries,
        )
    if step_parts(run.manifest.reward):
        module = importlib.import_module(f"ratchet.environments.{run.manifest.environment.name}.agents")
        for agent in sorted({section.agent for section in run.manifest.logs}):
            rollout = play(environment, agent, module.AGENTS[agent], task, 0)
            if rollout.deliverable is not None and rollout.invalid is None:
                yield Attempt(
                    task=task,
                    deliverable=rollout.deliverable,
                    verdict=_verdict(environment, task, rollout.deliverable),
                    steps=calls_of(rollout),
                    permissions=environment.spec,
                    canaries=canaries,
                )


def _verdict(environment: Environment, task: Task, deliverable: Deliverable) -> Verdict | Invalid:
    try:
        return environment.verify(task, deliverable)
    except SandboxError as error:
        return Invalid(reason=f"verification: {error}")
