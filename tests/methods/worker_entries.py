"""Functions that the tests run in a worker process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ratchet import progress
from ratchet.contracts.training import TokenSample
from ratchet.errors import RightsError


def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    print("noise from a library")
    progress.say("first line")
    progress.say("second line")
    return {"got": arguments["value"], "threads": os.environ["OMP_NUM_THREADS"]}


def refuse(arguments: dict[str, Any]) -> None:
    raise RightsError("grant g1", seen="withdrawn", rule="the right must hold", remedy="ask for it")


def crash(arguments: dict[str, Any]) -> None:
    raise ZeroDivisionError("by zero")


def hang(arguments: dict[str, Any]) -> None:
    """Start a child of its own, tell both ids, and wait for ever."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(arguments["pids"]).write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    progress.say("hanging")
    time.sleep(600)


def train(arguments: dict[str, Any]) -> dict[str, Any]:
    """Train the tiny policy; die by SIGKILL in the first validation after step `die_after`, where one is named."""
    import tiny_policy

    from ratchet.methods import fitting, grpo, sft

    output = Path(arguments["output"])

    def validate(model: Any) -> float:
        curve = output / "curves.jsonl"
        steps = len(curve.read_text(encoding="utf-8").splitlines()) if curve.exists() else 0
        if arguments["die_after"] is not None and steps >= arguments["die_after"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return tiny_policy.likes_target(model)

    model, tokenizer = tiny_policy.build_model(), tiny_policy.build_tokenizer()
    if arguments["method"] == "sft":
        demonstrations = [TokenSample([2 + index % 5, 3, 7], [False, False, True], None, (1,)) for index in range(12)]
        outcome = sft.fit(
            model, tokenizer, demonstrations, sft.Settings(batch_size=6), seed=1, output=output, validate=validate
        )
    else:
        settings = grpo.Settings(steps=6, prompts_per_step=2, group_size=8, validate_every=2)
        tasks = [str(index) for index in range(10)]
        outcome = grpo.fit(
            model, tokenizer, tasks, tiny_policy.sample, settings, seed=1, output=output, validate=validate
        )
    return {"weights": fitting.weights_digest(model), "resumed_from": outcome.resumed_from, "step": outcome.step}
