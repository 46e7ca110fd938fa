"""A real vLLM server on the starter checkpoint, which all tests share; it takes minutes until it answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ratchet.policies.checkpoint import STARTER, load, load_tokenizer
from ratchet.rollouts.vllm_export import export_checkpoint
from ratchet.rollouts.vllm_server import Settings, VllmServer

VENV = Path(__file__).resolve().parents[1] / ".venv-serve"
STALENESS = 1
"""Versions behind the newest one that a test asks."""


@contextmanager
def running_vllm(folder: Path) -> Iterator[VllmServer]:
    """A server with room for adapters; the test is skipped where its environment was not made."""
    if not (VENV / ".made-from").exists():
        pytest.skip("the vLLM server's environment .venv-serve is not there: make serve-env")
    base = export_checkpoint(STARTER, folder / "base")
    settings = Settings(venv=VENV, checkpoint=base, log=folder / "vllm.log", adapters=STALENESS + 2, rank=8)
    with VllmServer(settings) as server:
        yield server


def adapter(folder: Path, seed: int) -> Path:
    """A LoRA adapter of the starter with weights of its own."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    adapted = get_peft_model(
        load(STARTER)[0], LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "o_proj", "up_proj"])
    )
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=0.05)
    adapted.save_pretrained(str(folder))
    load_tokenizer(STARTER).save_pretrained(folder)
    return folder


def forward(folder: Path, ids: list[int], start: int, temperature: float = 1.0) -> list[float]:
    """Log-probabilities of the ids from `start` on by one plain pass, as a trainer computes them."""
    import torch

    model, _ = load(folder)
    with torch.inference_mode():
        scores = model(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1].float() / temperature
    found: list[float] = torch.log_softmax(scores, -1).gather(1, torch.tensor(ids[start:])[:, None])[:, 0].tolist()
    return found
