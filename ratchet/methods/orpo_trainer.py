"""TRL's ORPOTrainer on token ids, with prompt and tool results out of the loss.

Imports torch and trl: load it inside `fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trl.experimental.orpo import ORPOTrainer

from ratchet.methods.fitting import InOrder, Quiet


class PairORPOTrainer(Quiet, InOrder, ORPOTrainer):
    """ORPO over pairs that are token ids already."""

    def __init__(self, indices: Sequence[int], **kwargs: Any) -> None:
        """Take the order of the pairs; see ORPOTrainer for the rest."""
        self.indices = indices
        super().__init__(**kwargs)

    def tokenize_row(self, feature: dict[str, Any], model: Any = None) -> dict[str, Any]:
        """Leave the row as it is: there is no text to tokenise, and nothing to truncate."""
        return feature

    def concatenated_forward(self, model: Any, batch: dict[str, Any]) -> tuple[Any, ...]:
        """TRL's forward pass; the likelihood term runs over the labels, as the odds ratio does.

        Returns:
            As TRL does: mean log-prob per token of the preferred and rejected trajectories, each of shape (pairs,),
            their logits, and the likelihood term, a scalar.
        """
        found: tuple[Any, ...] = super().concatenated_forward(model, batch)
        # Index 4 is TRL's likelihood term; a mixture of experts has its balancing loss after it.
        return (*found[:4], -found[0].mean(), *found[5:])
