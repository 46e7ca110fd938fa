"""What the libraries of training are told before they train: to be quiet, to stay at home, to leave out useless work.

Imports torch and transformers: load it inside `fit`.
"""

from __future__ import annotations

import logging
import os

import torch
from datasets import disable_progress_bars
from transformers.utils.logging import disable_progress_bar


def hush() -> None:
    """Keep libraries from writing to the run's output and from calling home."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # `rollout_func` is the documented hook for own rollouts; TRL's version is pinned, so its notice says nothing new.
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    # TRL imports MLflow to profile into it (1 to 2 s); curves reach MLflow from the parent, never from the trainer.
    os.environ.setdefault("DISABLE_MLFLOW_INTEGRATION", "TRUE")
    disable_progress_bar()
    disable_progress_bars()
    for name in ("trl", "transformers", "accelerate", "peft"):
        logging.getLogger(name).setLevel(logging.ERROR)


def score_targets_only() -> None:
    """Have TRL's LM head skip positions without a target on a CPU, as it does on a GPU.

    Elsewhere TRL multiplies every position by the vocabulary and throws the masked ones away (it does so for
    accelerators that compile per shape). Same values, and a quarter less time to train a small policy in which two
    tokens of three are masked. Where another version of TRL decides otherwise, nothing changes.
    """
    from trl.trainer import utils

    original = getattr(utils, "_use_triton", None)
    if original is None or hasattr(original, "on_cpu"):
        return

    def compact(device: torch.device) -> bool:
        return device.type == "cpu" or bool(original(device))

    compact.on_cpu = True  # type: ignore[attr-defined]
    utils._use_triton = compact
