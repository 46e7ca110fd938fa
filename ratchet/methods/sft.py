"""SFT: imitate curated demonstrations; only the tokens that the assistant wrote carry loss.

TRL's SFTTrainer on token ids (negative log-likelihood, mean over the tokens of a batch that carry loss). Whole
sequences only: nothing is truncated or tokenised here. `packing` lays the demonstrations of a forward pass in one row
without padding; it is refused where the policy's attention would reach from one into the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack

from pydantic import Field

from ratchet.errors import ManifestError, NothingToLearn
from ratchet.methods import base
from ratchet.methods.base import Common, Needs, Outcome, Tokens

NEEDS: Needs = "demonstrations"
LEAK = 1e-4
"""Difference of log-probs, in nats, above which packed sequences are said to see each other."""


class Settings(base.Passes):
    """Hyper-parameters of SFT."""

    lr: float = Field(default=2e-3, gt=0, description="Highest learning rate (AdamW).")
    epochs: float = Field(default=3.0, gt=0, description="Passes over the demonstrations.")
    packing: bool = Field(
        default=False, description="Lay the demonstrations of a forward pass in one row, without padding."
    )
    loss_on: Literal["assistant", "completion"] = Field(
        default="assistant",
        description="`assistant`: what the assistant wrote in every turn; `completion`: its last turn alone.",
    )


def labels(sample: Tokens, loss_on: str = "assistant") -> list[int]:
    """Targets of one sequence: the token id where it carries loss, -100 (ignored) elsewhere.

    Args:
        sample: ids and mask.
        loss_on: `assistant` for every token of the mask, `completion` for its last unbroken stretch alone: everything
            before it, earlier turns and tool results included, is then the prompt.
    """
    mask = [bool(bit) for bit in sample.sampled_mask]
    if loss_on == "completion":
        last = max(at for at, bit in enumerate(mask) if bit)
        first = last
        while first > 0 and mask[first - 1]:
            first -= 1
        mask = [first <= at <= last for at in range(len(mask))]
    return [token if bit else -100 for token, bit in zip(sample.input_ids, mask, strict=True)]


def fit(
    model: Any,
    tokenizer: Any,
    samples: Sequence[Tokens],
    settings: Settings,
    **common: Unpack[Common],
) -> Outcome:
    """Train on demonstrations.

    Args:
        model: causal language model of transformers; it is trained in place.
        tokenizer: its tokenizer (only the pad token is used); saved beside the weights.
        samples: sequences with their masks; every one must hold a token that carries loss.
        settings: hyper-parameters.
        **common: what every method takes; see `ratchet.methods.base.Common`.

    Raises:
        NothingToLearn: there is no demonstration.
        TrainingError: a bad mask, a diverging loss.
        ManifestError: `packing` with a policy whose attention would leak.
    """
    name = common.get("name", "sft")
    if not samples:
        raise NothingToLearn(
            f"data of {name}",
            seen="no demonstration",
            rule="at least one trajectory must be there to imitate",
            remedy="name agents whose logs hold accepted trajectories of training tasks",
        )
    for index, sample in enumerate(samples):
        base.check_masks(f"{name}: demonstration {index}", sample.input_ids, sample.sampled_mask)
    if settings.packing:
        refuse_leak(model, f"methods.{name}.settings.packing")

    from ratchet.methods import fitting

    rows = [{"input_ids": list(one.input_ids), "labels": labels(one, settings.loss_on)} for one in samples]
    indices, steps, every = fitting.passes(settings, len(rows), common["seed"])
    begun = fitting.begin(
        "sft", model, tokenizer, settings, {"rows": rows},
        steps=steps, rows=settings.batch_size, every=every, **common,
    )  # fmt: skip
    from datasets import Dataset
    from trl.trainer.sft_trainer import SFTConfig, SFTTrainer

    quiet = type("QuietSFTTrainer", (fitting.Quiet, fitting.InOrder, SFTTrainer), {"indices": indices})
    trainer = quiet(
        args=SFTConfig(
            **begun.arguments,
            max_length=None,
            padding_free=settings.packing,
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
        train_dataset=Dataset.from_list(rows),
        **begun.trainer,
    )
    return fitting.run(trainer, begun)


def refuse_leak(model: Any, where: str) -> None:
    """Refuse packing for a policy in which one packed sequence sees another; measured on the policy itself.

    Two sequences in one row, each with positions from 0, must get the log-probs that each gets alone. Whether they do
    depends on the architecture, on the attention's implementation and on the version of transformers.

    Raises:
        ManifestError: names the setting and by how much the log-probs differ.
    """
    import torch

    from ratchet.methods.callbacks import evaluating

    # Of the vocabulary's size alone, so that the same policy is always asked the same.
    first, second = ([(7 * at + start) % model.config.vocab_size for at in range(6)] for start in (2, 5))
    device = model.device

    def scores(ids: list[int], positions: list[int]) -> torch.Tensor:
        found = model(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
        )
        return torch.log_softmax(found.logits[0].float(), dim=-1)

    with evaluating(model):
        alone = torch.cat([scores(first, list(range(6))), scores(second, list(range(6)))])
        packed = scores(first + second, [*range(6), *range(6)])
    difference = float((alone - packed).abs().max())
    if difference > LEAK:
        raise ManifestError(
            where,
            seen=f"log-probs that differ by {difference:.2g} nats",
            rule=f"packed sequences must not see each other with {type(model).__name__} as it is loaded",
            remedy="leave packing out, or load the policy with an attention that heeds positions",
        )
