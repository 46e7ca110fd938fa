"""Train the starter checkpoint that ships with Ratchet: the habits of a mediocre agent, learned on generated functions.

    python scripts/train_starter.py [--episodes 1600] [--epochs 3]

Writes `ratchet/policies/data/starter` (weights, tokenizer, MODEL_CARD.md) and the corpus it saw
(`starter-corpus.jsonl.gz`), which the contamination check reads. No benchmark problem enters: tokenizer and weights see
generated functions only.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ratchet.contracts.environment import ActionLimits
from ratchet.contracts.manifest import EnvironmentSection
from ratchet.contracts.score import Unscored
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.agents import mediocre
from ratchet.environments.repair.edits import PLACES, RULES
from ratchet.environments.repair.episode import TOOLS
from ratchet.environments.repair.symptoms import SYMPTOMS
from ratchet.methods import sft
from ratchet.policies import checkpoint
from ratchet.policies.rendering import Rendering
from ratchet.policies.tokenizer import build_tokenizer
from ratchet.progress import task as progress
from ratchet.rollouts.record import to_trajectory
from ratchet.rollouts.scripted import play
from ratchet.sandbox import Limits, MemoSandbox, open_sandbox

SEED = 7


def words() -> list[str]:
    """The environment's words: one token each."""
    numbered = [f"{i}/{n}" for n in range(1, 13) for i in range(1, n + 1)]
    said = (
        "failing applied reverted submitted passed all no such call more fixes fix shown revert first nothing "
        "tests edited not permitted"
    )
    # The answer key is no word of the starter's: it came after it, and a policy is not to find it by its vocabulary.
    tools = [tool for tool in TOOLS if tool != "open_answers"]
    return [*tools, *RULES, *PLACES, *SYMPTOMS, *numbered, *said.split()]


def main() -> None:
    """Make the tasks, play the episodes, train, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1600)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    options = parser.parse_args()
    section = EnvironmentSection(
        name="repair",
        version="1",
        tools=("read_report", "next_fix", "apply_fix", "revert", "run_tests", "submit", "edit_tests"),
        limits=ActionLimits(max_calls=24, max_tokens_per_turn=3, episode_timeout_s=120),
        settings={"problems": "generated", "catalogue": {"tasks_per_problem": 10, "fixes": 8}},
    )
    with MemoSandbox(open_sandbox(limits=Limits(cpu_s=0.3, wall_s=5))) as sandbox:
        environment = RepairEnvironment(section, sandbox, seed=SEED)
        tasks = list(environment.tasks())
        draws = random.Random(SEED)
        requests = [(draws.choice(tasks), seed) for seed in range(options.episodes)]
        with progress("episodes of the mediocre agent", len(requests)) as tick, ThreadPoolExecutor(4) as pool:

            def attempt(request: tuple) -> object:
                rollout = play(environment, "mediocre", mediocre, *request)
                tick()
                return rollout

            rollouts = list(pool.map(attempt, requests))
    tokenizer = build_tokenizer(words(), (task.prompt for task in tasks))
    rendering = Rendering(tokenizer)
    samples = [
        rendering.sample(
            to_trajectory(
                rollout,
                environment.spec,
                Unscored(),
                policy="mediocre",
                policy_digest=None,
                decoding=None,
                tenant="practice",
                grant_id="own",
            )
        )
        for rollout in rollouts
    ]
    print(
        f"{len(tasks)} tasks, {len(samples)} episodes, {sum(len(s.input_ids) for s in samples)} tokens, "
        f"vocabulary {len(tokenizer)}"
    )
    model = checkpoint.fresh(tokenizer, seed=SEED)
    print(f"{model.num_parameters()} parameters")
    settings = sft.Settings(lr=options.lr, epochs=options.epochs, batch_size=32)
    with tempfile.TemporaryDirectory() as scratch:
        outcome = sft.fit(model, tokenizer, samples, settings, seed=SEED, output=Path(scratch))
        target = checkpoint.STARTER
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(outcome.checkpoint, target)
    with gzip.GzipFile(target.parent / "starter-corpus.jsonl.gz", "wb", mtime=0) as file:
        for task in tasks:
            row = {"name": task.task_id, "text": task.prompt, "code": [task.payload["files"]["solution.py"]]}
            file.write((json.dumps(row, sort_keys=True) + "\n").encode())
    (target / "MODEL_CARD.md").write_text(
        CARD.format(
            parameters=model.num_parameters(), vocabulary=len(tokenizer), tasks=len(tasks), episodes=len(samples),
            epochs=options.epochs, lr=options.lr, loss=outcome.curve[-1].loss, seconds=round(outcome.seconds),
        ),
        encoding="utf-8",
    )  # fmt: skip


CARD = """# Starter checkpoint of the `repair` experiment

A Llama-architecture policy of {parameters:,} parameters (width 96, 3 layers, 4 heads, tied embeddings, float32) with its own
byte-level BPE tokenizer of {vocabulary} tokens. Licence: Apache-2.0, like Ratchet.

- Use: the incumbent of the embedded experiment, as a team would bring its own; not useful for anything else.
- Data: {episodes:,} real episodes of the scripted agent `mediocre` on {tasks:,} tasks made from generated functions
  (`ratchet/environments/repair/generated.py`). No benchmark problem. The corpus is `starter-corpus.jsonl.gz` beside this folder;
  the contamination check of every experiment that starts here reads it.
- Recipe: `python scripts/train_starter.py` (seed 7, {epochs:g} epochs of SFT, batches of 32, learning rate {lr:g}), {seconds} s of
  training, last loss {loss:.3f}.
- Habits: looks at the tests first, tries the fixes one by one in the order shown, reads the report again
  around every test run, runs failing tests twice, now and then hands in what does not pass.
"""  # noqa: E501

if __name__ == "__main__":
    main()
