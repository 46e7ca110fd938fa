"""One batched multi-turn GRPO step: ours against TRL's own loop over `environment_factory`.

    python benchmarks/grpo_step.py [--steps 3] [--tasks 8] [--group 8] [--calls 8]

Both train the starter policy on the same tasks of `repair` with the same group size, at most the same number of calls,
the same reward and the same learning rate, in this process, one after the other. A step is sampling, tools, hidden
tests, advantages, and the update. The code that tools run is remembered by both alike. TRL cannot end an episode from
the environment, so that a submission there costs one more turn. The first step of each is left out.

For TRL, the policy's tokenizer gets a chat template that renders calls, and a parser that takes the one word of a turn
for the name of a tool; both cost next to nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from episodes import RESULTS, THREADS, harness, world

from ratchet.contracts.environment import Task, ToolCall
from ratchet.contracts.manifest import Manifest
from ratchet.environments.repair import RepairEnvironment
from ratchet.loop.trainer import rollout_sample
from ratchet.methods import grpo
from ratchet.methods.base import RolloutSample
from ratchet.policies.checkpoint import STARTER, load
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.judged import Request, attempt_all, judge
from ratchet.rollouts.rollout import Rollout

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message['tool_calls'] %}{% for call in message['tool_calls'] %}{{ call['function']['name'] }}"
    "{% for key, value in (call['function']['arguments'] or {}).items() %} {{ key }} {{ value }}{% endfor %}"
    "{% endfor %}{% else %}{{ message['content'] }}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


class Sizes:
    """How much is done."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Take the command line's."""
        self.steps, self.tasks, self.group, self.calls = (
            arguments.steps, arguments.tasks, arguments.group, arguments.calls,
        )  # fmt: skip


def ours(
    manifest: Manifest, environment: RepairEnvironment, tasks: list[Task], sizes: Sizes, folder: Path
) -> list[float]:
    """Seconds of each step of `ratchet.methods.grpo` after the first."""
    model, tokenizer = load(STARTER)
    rendering, own = Rendering(tokenizer), harness(manifest)
    by_id = {task.task_id: task for task in tasks}
    turns: list[int] = []

    with ThreadPoolExecutor(THREADS) as pool:

        def sampler(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
            def play(some: list[Request]) -> list[Rollout]:
                return run_batch(model, rendering, environment, own, some, salt=f"bench/{step}", pool=pool)

            requests = [(by_id[name], at % sizes.group) for at, name in enumerate(task_ids)]
            judged = attempt_all(environment, requests, manifest.reward, play, pool, 0)
            turns.append(sum(one.rollout.calls for one in judged))
            return [rollout_sample(one, 0.0) for one in judged]

        settings = grpo.Settings(
            steps=sizes.steps + 1, prompts_per_step=sizes.tasks, group_size=sizes.group, track_kl=False
        )
        found = grpo.fit(model, tokenizer, list(by_id), sampler, settings, seed=7, output=folder)
    ended = [row.seconds for row in found.curve]
    print(f"ours: {turns} calls per step")
    return [after - before for before, after in pairwise(ended)]


def trls(
    manifest: Manifest, environment: RepairEnvironment, tasks: list[Task], sizes: Sizes, folder: Path
) -> list[float]:
    """Seconds of each step of TRL's own loop after the first."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = load(STARTER)
    tokenizer.chat_template = TEMPLATE
    tokenizer.padding_side = "left"
    tools = set(manifest.environment.tools)
    by_id = {task.task_id: task for task in tasks}
    calls: list[int] = []

    def parse(ids: Any, **_: Any) -> dict[str, Any]:
        name = str(tokenizer.decode(ids, skip_special_tokens=True)).strip()
        if name not in tools:
            return {"role": "assistant", "content": name}
        return {
            "role": "assistant", "content": "",
            "tool_calls": [{"type": "function", "function": {"name": name, "arguments": {}}}],
        }  # fmt: skip

    tokenizer.response_template = {"fields": {}}
    tokenizer.parse_response = parse

    class Clock(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.ended: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ended.append(time.perf_counter())

    class Repair:
        """The environment as TRL wants it: tools are methods, and one instance is reset for every rollout."""

        def reset(self, task_id: str = "", **_: Any) -> None:
            self._task = by_id[task_id]
            self._stack = environment.open(self._task, 0)
            self._episode = self._stack.__enter__()
            self._made, self._malformed, self._over = 0, 0, False

        def _call(self, name: str) -> str:
            if self._over:
                return "over"
            found = self._episode.call(ToolCall(name=name))
            self._made += 1
            self._over = found.ends_episode
            calls.append(1)
            return found.content

        def get_reward(self) -> float:
            rollout = Rollout(self._task, 0, [], [], [], self._episode.deliverable(), None, 0.0)
            self._stack.__exit__(None, None, None)
            return float(judge(environment, rollout, manifest.reward).outcome.reward or 0.0)

    for name in manifest.environment.tools:
        setattr(Repair, name, _tool(name))
    clock = Clock()
    rows = [
        {"prompt": [{"role": message.role, "content": message.content} for message in opened(environment, task)],
         "task_id": task.task_id}
        for task in tasks[: sizes.tasks]
    ]  # fmt: skip
    arguments = GRPOConfig(
        output_dir=str(folder),
        max_steps=sizes.steps + 1,
        per_device_train_batch_size=sizes.tasks * sizes.group,
        num_generations=sizes.group,
        max_completion_length=12 * sizes.calls,
        max_tool_calling_iterations=sizes.calls,
        learning_rate=1e-3,
        beta=0.0,
        scale_rewards="none",
        loss_type="dapo",
        seed=7,
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1000,
    )
    trainer = GRPOTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows * (sizes.steps + 1)),
        processing_class=tokenizer,
        environment_factory=Repair,
        reward_funcs=[],
        callbacks=[clock],
    )
    trainer.train()
    print(f"TRL: {sum(calls)} calls in all, {sum(calls) / (sizes.steps + 1):.0f} per step")
    return [after - before for before, after in pairwise(clock.ended)]


def _tool(name: str) -> Any:
    # Without an annotation: TRL would take an annotated `self` for an argument of the tool.
    def tool(self) -> str:  # type: ignore[no-untyped-def]
        return str(self._call(name))

    tool.__name__ = name
    tool.__doc__ = f"""The tool {name}.

    Returns:
        What the environment says.
    """
    return tool


def opened(environment: RepairEnvironment, task: Task) -> list[Any]:
    """What a policy sees first of a task."""
    with environment.open(task, 0) as episode:
        return episode.observation()


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (("steps", 3), ("tasks", 8), ("group", 8), ("calls", 8)):
        parser.add_argument(f"--{name}", type=int, default=number)
    sizes = Sizes(parser.parse_args())
    torch.set_num_threads(1)
    from ratchet.methods import fitting

    fitting.hush()
    with world(sizes.calls) as (manifest, environment, tasks), tempfile.TemporaryDirectory() as folder:
        mine = ours(manifest, environment, tasks[: sizes.tasks], sizes, Path(folder) / "ours")
        theirs = trls(manifest, environment, tasks[: sizes.tasks], sizes, Path(folder) / "trl")
    own, other = median(mine), median(theirs)
    if not math.isfinite(own / other):
        raise SystemExit("no step was measured")
    print(f"{sizes.tasks} x {sizes.group} episodes of up to {sizes.calls} calls, median of {sizes.steps} steps")
    print(f"ours {own:.2f} s a step, TRL's environment_factory {other:.2f} s: {other / own:.2f} times (target: 2)")
    row = {
        "name": f"GRPO step of {sizes.tasks} x {sizes.group} episodes", "figure": round(own, 3), "unit": "s",
        "peer": "TRL's environment_factory loop", "peer_figure": round(other, 3), "ratio": round(own / other, 3),
    }  # fmt: skip
    (RESULTS.parent / "grpo_step.json").write_text(json.dumps([row], indent=2) + "\n")


if __name__ == "__main__":
    main()
