"""Checkpoints and adapters widened for vLLM: the same answers, whole folders, refusals by name."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from ratchet.errors import EngineError
from ratchet.policies.checkpoint import STARTER, fresh, load, load_tokenizer, save
from ratchet.rollouts.vllm_export import (
    export,
    export_adapter,
    export_checkpoint,
    head_size,
    is_export,
    refuse_unserved,
)


def answers(folder: Path) -> torch.Tensor:
    """Log-probabilities of one long sequence."""
    model, _ = load(folder)
    rng = random.Random(3)
    ids = torch.tensor([[rng.randrange(model.config.vocab_size) for _ in range(200)]])
    with torch.inference_mode():
        return torch.log_softmax(model(input_ids=ids).logits[0].double(), -1)


def adapter(folder: Path) -> Path:
    """A LoRA adapter of the starter on every projection, with weights that are not zero."""
    from peft import LoraConfig, get_peft_model

    names = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"]
    torch.manual_seed(1)
    adapted = get_peft_model(load(STARTER)[0], LoraConfig(r=4, lora_alpha=8, target_modules=names))
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=0.02)
    adapted.save_pretrained(folder)
    load_tokenizer(STARTER).save_pretrained(folder)
    return folder


def test_a_checkpoint_with_narrow_heads_answers_the_same_once_widened(tmp_path: Path) -> None:
    exported = export_checkpoint(STARTER, tmp_path / "served")
    config = load(exported)[0].config
    assert (head_size(load(STARTER)[0].config), head_size(config)) == (24, 32)
    assert (answers(exported) - answers(STARTER)).abs().max() < 2e-5


def test_a_checkpoint_that_is_served_as_it_is_stays_where_it_is(tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    tokenizer = load_tokenizer(STARTER)
    config = fresh(tokenizer, seed=1, width=64, layers=1, heads=2).config
    config.tie_word_embeddings = False
    save(LlamaForCausalLM(config), tokenizer, tmp_path / "own")
    assert export_checkpoint(tmp_path / "own", tmp_path / "served") == tmp_path / "own"
    assert not (tmp_path / "served").exists()


def test_an_adapter_is_merged_before_its_heads_are_widened(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter")
    exported = export_checkpoint(folder, tmp_path / "served")
    assert not (exported / "adapter_config.json").exists()
    assert (answers(exported) - answers(folder)).abs().max() < 2e-5
    assert (answers(exported) - answers(STARTER)).abs().max() > 0.01


def test_a_widened_adapter_on_the_widened_base_answers_as_the_narrow_pair(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter")
    base = export_checkpoint(STARTER, tmp_path / "base")
    exported = export_adapter(folder, tmp_path / "served")
    settings = json.loads((exported / "adapter_config.json").read_text())
    (exported / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": str(base)}))
    load_tokenizer(STARTER).save_pretrained(exported)
    assert (answers(exported) - answers(folder)).abs().max() < 2e-5


@pytest.mark.parametrize("kind", ["checkpoint", "adapter"])
def test_an_export_is_told_from_one_of_other_weights_by_its_files(tmp_path: Path, kind: str) -> None:
    folder = STARTER if kind == "checkpoint" else adapter(tmp_path / "adapter")
    read = export(folder, tmp_path / "served")
    assert (read / "adapter_config.json").exists() == (kind == "adapter")
    assert is_export(read, folder)
    file = next(read.glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert not is_export(read, folder)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"r": 8, "use_dora": True}, "DoRA"),
        ({"r": 8, "bias": "all"}, "bias 'all'"),
        ({"r": 8, "modules_to_save": ["embed_tokens"]}, "whole modules"),
        ({"r": 1024}, "rank 1024"),
    ],
)
def test_an_adapter_that_vllm_would_serve_wrongly_is_refused_by_what_it_has(
    settings: dict[str, object], told: str
) -> None:
    with pytest.raises(EngineError, match=told):
        refuse_unserved(settings)


def test_heads_that_cannot_be_widened_are_refused(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = load_tokenizer(STARTER)
    save(GPT2LMHeadModel(GPT2Config(n_embd=24, n_head=2, n_layer=1, vocab_size=711)), tokenizer, tmp_path / "own")
    with pytest.raises(EngineError, match="a gpt2 checkpoint with heads of 12"):
        export_checkpoint(tmp_path / "own", tmp_path / "served")
