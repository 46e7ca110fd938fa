"""A judge that is a local checkpoint: a causal language model that weighs the categories by their log-probability.

The prompt is the presentation of the item, under the tokenizer's chat template with the instructions before it where
there is one. Nothing is sampled: the category with the largest summed log-probability wins, so the same checkpoint
gives the same grade. An item that does not fit the model's context is invalid, never cut.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ratchet.contracts.canonical import digest
from ratchet.contracts.score import Quantity
from ratchet.rewards.judges.base import Judgement
from ratchet.rewards.judges.rubric import Item, Rubric, instructions, presentation
from ratchet.store import folder_digest

PROMPT_VERSION = "1"
ASK = "\n\nCategory:"
CONTEXT = 2048
"""Longest prompt in tokens where the model does not state a limit of its own."""


class LocalJudge:
    """Implements `ratchet.rewards.judges.base.Judge`."""

    batch = 32

    def __init__(self, rubric: Rubric, checkpoint: Path, *, device: str = "cpu", cost_per_call: Quantity = 0.0) -> None:
        """Load the checkpoint.

        Args:
            rubric: what it grades by.
            checkpoint: folder in Hugging Face format.
            device: torch device.
            cost_per_call: what one judged item is counted with, in USD.
        """
        # Loading transformers costs seconds: only where a local judge is used.
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.rubric, self.cost_per_call = rubric, cost_per_call
        self._tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        self._model = cast(Any, AutoModelForCausalLM.from_pretrained(checkpoint)).to(device).eval()
        self._device = device
        self._lock = threading.Lock()
        self.digest = digest([rubric, instructions(rubric), PROMPT_VERSION, folder_digest(checkpoint)])

    def judge(self, items: Sequence[Item]) -> list[Judgement]:
        """Grade items in one forward pass over every pair of item and category."""
        prompts = [self._tokens(prompt_of(self.rubric, item, self._tokenizer)) for item in items]
        endings = [self._tokens(f" {category}") for category in self.rubric.categories]
        limit = getattr(self._model.config, "max_position_embeddings", CONTEXT)
        longest = max(len(one) for one in endings)
        fits = [len(prompt) + longest <= limit for prompt in prompts]
        rows = [(prompt, ending) for prompt, fit in zip(prompts, fits, strict=True) if fit for ending in endings]
        scores = iter(self._log_probs(rows) if rows else ())
        found = []
        for prompt, fit in zip(prompts, fits, strict=True):
            if not fit:
                found.append(Judgement(invalid=f"it has {len(prompt)} tokens and the model reads {limit}"))
                continue
            weighed = [(next(scores), category) for category in self.rubric.categories]
            if not all(math.isfinite(score) for score, _ in weighed):
                found.append(Judgement(invalid="a log-probability of its model is not finite"))
                continue
            (best, category), (second, _) = sorted(weighed, reverse=True)[:2]
            found.append(
                Judgement(
                    category=category,
                    reason=f"log-odds {best - second:.2f} over the next category",
                    prompt_tokens=len(prompt),
                    completion_tokens=len(endings[self.rubric.categories.index(category)]),
                    cost_usd=self.cost_per_call,
                )
            )
        return found

    def _tokens(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def _log_probs(self, rows: Sequence[tuple[list[int], list[int]]]) -> list[float]:
        """Summed log-probability of each ending after its prompt."""
        import torch

        width = max(len(prompt) + len(ending) for prompt, ending in rows)
        tokens = torch.zeros((len(rows), width), dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for number, (prompt, ending) in enumerate(rows):
            whole = prompt + ending
            tokens[number, : len(whole)] = torch.tensor(whole)
            mask[number, : len(whole)] = 1
        with self._lock, torch.inference_mode():
            logits = self._model(input_ids=tokens.to(self._device), attention_mask=mask.to(self._device)).logits
        log_probs = torch.log_softmax(logits.float(), dim=-1).cpu()
        return [
            float(sum(log_probs[row, len(prompt) + at - 1, token] for at, token in enumerate(ending)))
            for row, (prompt, ending) in enumerate(rows)
        ]


def prompt_of(rubric: Rubric, item: Item, tokenizer: Any) -> str:
    """Return the text that the model continues with a category."""
    shown = presentation(item)
    if not getattr(tokenizer, "chat_template", None):
        return shown + ASK
    messages = [{"role": "system", "content": instructions(rubric)}, {"role": "user", "content": shown}]
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text + ASK.lstrip()
