"""A tiny random Llama, a word-level tokenizer, and a task that a bandit could learn: say one given token."""

from __future__ import annotations

import math
from typing import Any

from ratchet.methods.base import RolloutSample

VOCAB = 32
TARGET = 7
TOOL = 9


def build_tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<eos>": 1, **{f"w{index}": index for index in range(2, VOCAB)}}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="<pad>")), pad_token="<pad>", eos_token="<eos>"
    )


def build_model(seed: int = 0) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).float()


def sample(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
    """Episodes of three sampled tokens with a tool result after each; reward: share of them that is the target."""
    import torch

    rows = [[2 + int(task) % 5, 3] for task in task_ids]
    prompts = [list(row) for row in rows]
    masks: list[list[int]] = [[] for _ in rows]
    scores: list[list[float]] = [[] for _ in rows]
    for _ in range(3):
        logps = model(input_ids=torch.tensor(rows)).logits[:, -1].log_softmax(-1)
        drawn = torch.multinomial(logps.exp(), 1)[:, 0].tolist()
        for index, token in enumerate(drawn):
            rows[index] += [token, TOOL]
            masks[index] += [1, 0]
            scores[index] += [float(logps[index, token]), 0.0]
    return [
        RolloutSample(
            prompt,
            row[len(prompt) :],
            mask,
            score,
            sum(token == TARGET for token in row[2::2]) / 3,
            {"target": float(row[2] == TARGET)},
        )
        for prompt, row, mask, score in zip(prompts, rows, masks, scores, strict=True)
    ]


def likes_target(model: Any) -> float:
    """Validation: probability of the target after one prompt."""
    import torch

    logits = model(input_ids=torch.tensor([[2, 3]])).logits
    return math.exp(logits[0, -1].log_softmax(-1)[TARGET].item())
