"""Training of every method on the tiny policy, as a worker process runs it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from ratchet.contracts.training import TokenSample
from ratchet.methods.base import PairSample

CASES: dict[str, dict[str, Any]] = {
    "sft": {"method": "sft"},
    "sft-packed": {"method": "sft", "settings": {"packing": True}},
    "sft-lora": {"method": "sft", "adapter": {"r": 4}},
    "dpo": {"method": "dpo"},
    "dpo-lora": {"method": "dpo", "adapter": {"r": 4}},
    "orpo": {"method": "orpo"},
    "orpo-lora": {"method": "orpo", "adapter": {"r": 4}},
    "grpo": {"method": "grpo"},
    "grpo-lora": {"method": "grpo", "adapter": {"r": 4}},
    "grpo-kl": {"method": "grpo", "settings": {"beta": 0.1}},
    "gspo": {"method": "gspo"},
    "rloo": {"method": "rloo"},
    "rloo-kl": {"method": "rloo", "settings": {"beta": 0.1}},
}
"""What is killed and resumed, by name."""
DIE_AFTER = 5


def killed_and_whole(arguments: dict[str, Any]) -> dict[str, Any]:
    """Every case trained whole, and trained by a process that dies by SIGKILL, and then by this one to the end.

    The processes that die are forked before anything is trained here: they share the imports and nothing else.

    Returns:
        By case: the exit status of the process that died (minus the signal), and what `whole` and `resumed` came to.
    """
    from ratchet.methods import fitting

    fitting.hush()
    import trl.experimental.orpo
    import trl.trainer.dpo_trainer
    import trl.trainer.grpo_trainer
    import trl.trainer.rloo_trainer
    import trl.trainer.sft_trainer  # noqa: F401 - loaded once, for all that are forked

    folder = Path(arguments["folder"])
    statuses = {}
    for name, case in CASES.items():
        child = os.fork()
        if child == 0:
            try:
                train(folder / name / "killed", die_after=DIE_AFTER, **case)
            finally:
                os._exit(0)
        statuses[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {
        name: {
            "status": statuses[name],
            "whole": train(folder / name / "whole", **case),
            "resumed": train(folder / name / "killed", **case),
        }
        for name, case in CASES.items()
    }


def train(
    output: Path,
    method: str,
    settings: dict[str, Any] | None = None,
    adapter: dict[str, Any] | None = None,
    die_after: int | None = None,
) -> dict[str, Any]:
    """Train the tiny policy; die by SIGKILL in the first validation after step `die_after`, where one is named."""
    import tiny_policy

    from ratchet.methods import base, fitting

    chosen = base.method(method)

    def validate(model: Any) -> float:
        curve = output / "curves.jsonl"
        steps = len(curve.read_text(encoding="utf-8").splitlines()) if curve.exists() else 0
        if die_after is not None and steps >= die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        return tiny_policy.likes_target(model)

    model, tokenizer = tiny_policy.build_model(), tiny_policy.build_tokenizer()
    if chosen.NEEDS == "tasks":
        learns: tuple[Any, ...] = ([str(index) for index in range(10)], tiny_policy.sample)
        parsed = chosen.Settings(
            steps=6, prompts_per_step=2, group_size=8, validate_every=2, iterations=1, **(settings or {})
        )
    else:
        parsed = chosen.Settings(epochs=3, batch_size=6, **(settings or {}))
        learns = (
            [TokenSample([2 + index % 5, 3, 7], [False, False, True], None, (1,)) for index in range(12)]
            if chosen.NEEDS == "demonstrations"
            else [PairSample([2 + index % 5, 3], [7, 9, 7], [1, 0, 1], [8, 9], [1, 0]) for index in range(12)],
        )
    outcome = chosen.fit(model, tokenizer, *learns, parsed, seed=1, output=output, validate=validate, adapter=adapter)
    kept = sorted(file for file in outcome.checkpoint.iterdir() if file.suffix == ".safetensors")
    return {
        "weights": fitting.weights_digest(model),
        "kept": [file.read_bytes().hex()[-64:] for file in kept],
        "losses": [row.loss for row in outcome.curve],
        "resumed_from": outcome.resumed_from,
        "step": outcome.step,
    }


def several(arguments: dict[str, Any]) -> dict[str, Any]:
    """Train one case, in each of the processes that were launched; what the first one says is the result."""
    import tiny_policy

    from ratchet.methods import base
    from ratchet.policies.compute import processes

    chosen = base.method(arguments["method"])
    model, tokenizer = tiny_policy.build_model(), tiny_policy.build_tokenizer()
    rows: list[Any] = [
        TokenSample([2 + index % 5, 3, *[7] * (1 + index % 3)], [False, False, *[True] * (1 + index % 3)], None, (1,))
        for index in range(12)
    ]
    if chosen.NEEDS == "pairs":
        rows = [PairSample([2 + index % 5, 3], [7, 9, 7], [1, 0, 1], [8, 9], [1, 0]) for index in range(12)]
    learns: tuple[Any, ...] = (
        ([str(at) for at in range(10)], tiny_policy.sample) if chosen.NEEDS == "tasks" else (rows,)
    )
    asked: list[int] = []

    def validate(model: Any) -> float:
        asked.append(os.getpid())
        return float(len(asked))

    outcome = chosen.fit(
        model, tokenizer, *learns, chosen.Settings(**arguments["settings"]), seed=1, output=Path(arguments["output"]),
        validate=validate, adapter=arguments.get("adapter"),
    )  # fmt: skip
    from safetensors.torch import load_file

    kept = load_file(outcome.checkpoint / "model.safetensors")
    return {
        "processes": processes(),
        "losses": [row.loss for row in outcome.curve],
        "validated": len(asked),
        "step": outcome.step,
        "weights": {name: value.flatten()[:40].tolist() for name, value in sorted(kept.items())},
    }
