from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import TrainingError
from ratchet.methods import orpo
from ratchet.methods.base import PairSample

PAIRS = [PairSample([2 + index % 5, 3], [7, 9, 7, 9], [1, 0, 1, 0], [8, 9, 8], [1, 0, 1]) for index in range(12)]
QUICK = orpo.Settings(epochs=4, batch_size=6, lr=5e-3)


def mean_logprob(model: Any, prompt: list[int], ids: list[int], mask: list[int]) -> float:
    import torch

    logps = model(input_ids=torch.tensor([prompt + ids])).logits[0].log_softmax(-1)
    written = [
        logps[len(prompt) + at - 1, token].item() for at, (token, bit) in enumerate(zip(ids, mask, strict=True)) if bit
    ]
    return sum(written) / len(written)


def by_hand(model: Any, pairs: list[PairSample], beta: float) -> float:
    """Equations 6 and 7 of the paper over the written tokens, with nothing of TRL in it."""
    total = 0.0
    for pair in pairs:
        chosen = mean_logprob(model, pair.prompt_ids, pair.chosen_ids, pair.chosen_mask)
        rejected = mean_logprob(model, pair.prompt_ids, pair.rejected_ids, pair.rejected_mask)
        odds = [value - math.log1p(-math.exp(value)) for value in (chosen, rejected)]
        total += -chosen - beta * -math.log1p(math.exp(odds[1] - odds[0]))
    return total / len(pairs)


MIXED = [
    PAIRS[0],
    PairSample([4], [7, 9, 12], [1, 0, 1], [8, 11, 9, 9, 13], [1, 1, 0, 0, 1]),
    PairSample([5, 6, 3], [14], [1], [15, 9], [1, 0]),
    PairSample([2, 3], [16, 17, 9], [1, 1, 0], [9, 18], [0, 1]),
]


@pytest.mark.parametrize("micro", [None, 1])
def test_the_loss_is_the_papers_over_the_written_tokens_however_the_batch_is_split(
    micro: int | None, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    settings = orpo.Settings(batch_size=4, max_steps=1, beta=0.7, micro_batch=micro)
    outcome = orpo.fit(new_model(), tokenizer, MIXED, settings, seed=1, output=tmp_path)
    assert outcome.curve[0].loss == pytest.approx(by_hand(new_model().eval(), MIXED, 0.7), abs=1e-4)


def test_the_preferred_trajectory_wins_without_a_reference(
    new_model: Callable[..., Any], tokenizer: Any, likes_target: Callable[[Any], float], tmp_path: Path
) -> None:
    outcome = orpo.fit(new_model(), tokenizer, PAIRS, QUICK, seed=1, output=tmp_path, validate=likes_target)
    assert outcome.curve[-1].metrics["accuracies"] == 1.0
    assert outcome.curve[-1].metrics["margins"] > outcome.curve[0].metrics["margins"]
    assert outcome.curve[-1].metrics["nll_loss"] < outcome.curve[0].metrics["nll_loss"] - 0.3
    assert outcome.validation is not None
    assert outcome.validation > likes_target(new_model().eval())


@pytest.mark.parametrize("side", ["chosen", "rejected"])
def test_a_tool_result_carries_no_loss(
    side: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """A result at the end is nobody's context: whatever it holds, the weights come out the same."""
    results = []
    for number, (last, bit) in enumerate([(11, 0), (23, 0), (23, 1)]):
        model = new_model()
        pair = PairSample([2, 3], [7, 9], [1, 0], [8, 9], [1, 0])._replace(
            **{f"{side}_ids": [7 if side == "chosen" else 8, last], f"{side}_mask": [1, bit]}
        )
        orpo.fit(model, tokenizer, [pair] * 6, QUICK, seed=1, output=tmp_path / str(number))
        results.append(model.state_dict()["model.embed_tokens.weight"].clone())
    assert (results[0] == results[1]).all()
    assert not (results[1] == results[2]).all()


def test_an_adapter_is_trained_and_merged(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> None:
    outcome = orpo.fit(new_model(), tokenizer, PAIRS, QUICK, seed=1, output=tmp_path, adapter={"r": 4})
    assert outcome.adapter is not None
    assert outcome.curve[-1].loss is not None
    assert outcome.curve[0].loss is not None
    assert outcome.curve[-1].loss < outcome.curve[0].loss
    assert (outcome.checkpoint / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("pairs", "culprit"),
    [
        ([], "data of orpo is 'no pair'"),
        ([PairSample([2], [7, 9], [1], [8], [1])], "preferred trajectory 0"),
        ([PairSample([2], [7], [1], [8], [0])], "rejected trajectory 0"),
        ([PairSample([], [7], [1], [8], [1])], "prompt of pair 0"),
    ],
)
def test_bad_pairs_are_refused(pairs: list[PairSample], culprit: str, tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=culprit):
        orpo.fit(None, tokenizer, pairs, QUICK, seed=1, output=tmp_path)
