"""TRL's DPOTrainer on token ids, with tool results out of the loss.

Imports torch and trl: load it inside `fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from trl.trainer.dpo_trainer import DataCollatorForPreference, DPOTrainer

from ratchet.methods.fitting import InOrder, Quiet


@dataclass
class MaskedPreference(DataCollatorForPreference):
    """TRL's collator, whose `completion_mask` keeps only the tokens that the policy wrote.

    The mask has shape (2 * pairs, length): preferred trajectories first, rejected ones after, as TRL wants them.
    """

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate pairs that hold `prompt_ids`, `chosen_ids`, `chosen_mask`, `rejected_ids` and `rejected_mask`."""
        batch: dict[str, Any] = super().torch_call(examples)
        written = torch.zeros_like(batch["completion_mask"])
        masks = [(pair["prompt_ids"], pair["chosen_mask"]) for pair in examples]
        masks += [(pair["prompt_ids"], pair["rejected_mask"]) for pair in examples]
        for row, (prompt, mask) in enumerate(masks):
            written[row, len(prompt) : len(prompt) + len(mask)] = torch.tensor(mask, dtype=written.dtype)
        batch["completion_mask"] = batch["completion_mask"] * written
        return batch


class PairDPOTrainer(Quiet, InOrder, DPOTrainer):
    """DPO over pairs that are token ids already."""

    def __init__(self, indices: Sequence[int], **kwargs: Any) -> None:
        """Take the order of the pairs; see DPOTrainer for the rest."""
        self.indices = indices
        super().__init__(**kwargs)

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Leave the dataset as it is: there is no text to tokenise."""
        return dataset
