from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import TrainingError
from ratchet.methods import dpo
from ratchet.methods.base import PairSample

PAIRS = [PairSample([2 + index % 5, 3], [7, 9, 7, 9], [1, 0, 1, 0], [8, 9, 8], [1, 0, 1]) for index in range(12)]
QUICK = dpo.Settings(epochs=3, batch_size=6, lr=2e-3)


def test_the_mask_holds_only_what_the_policy_wrote() -> None:
    from ratchet.methods.dpo_trainer import MaskedPreference

    rows = [PAIRS[0]._asdict(), PairSample([2], [7], [1], [9, 8], [0, 1])._asdict()]
    batch = MaskedPreference(pad_token_id=0)(rows)
    assert batch["input_ids"].tolist() == [
        [2, 3, 7, 9, 7, 9],
        [2, 7, 0, 0, 0, 0],
        [2, 3, 8, 9, 8, 0],
        [2, 9, 8, 0, 0, 0],
    ]
    assert batch["completion_mask"].tolist() == [
        [0, 0, 1, 0, 1, 0],
        [0, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 1, 0],
        [0, 0, 1, 0, 0, 0],
    ]


def test_the_margin_grows_from_a_reference_that_is_the_start(
    new_model: Callable[..., Any], tokenizer: Any, likes_target: Callable[[Any], float], tmp_path: Path
) -> None:
    outcome = dpo.fit(new_model(), tokenizer, PAIRS, QUICK, seed=1, output=tmp_path, validate=likes_target)
    assert outcome.curve[0].loss == pytest.approx(math.log(2), abs=1e-5)
    assert outcome.curve[0].metrics["margins"] == pytest.approx(0, abs=1e-5)
    assert outcome.curve[-1].metrics["margins"] > 0.05
    assert outcome.curve[-1].metrics["accuracies"] == 1.0
    assert outcome.validation is not None


def test_a_tool_result_carries_no_loss(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> None:
    """A result at the end is nobody's context: whatever it holds, the weights come out the same."""
    results = []
    for number, (last, mask) in enumerate([(11, 0), (23, 0), (23, 1)]):
        model = new_model()
        pair = PairSample([2, 3], [7, last], [1, mask], [8, last], [1, mask])
        dpo.fit(model, tokenizer, [pair] * 6, QUICK, seed=1, output=tmp_path / str(number))
        results.append(model.state_dict()["model.embed_tokens.weight"].clone())
    assert (results[0] == results[1]).all()
    assert not (results[1] == results[2]).all()


def test_the_reference_log_probs_are_those_of_the_written_tokens(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """With an `sft` term, the loss of the first step is ln 2 + the likelihood of the written preferred tokens."""
    import torch

    settings = QUICK.model_copy(update={"sft_weight": 1.0, "max_steps": 1})
    outcome = dpo.fit(new_model(), tokenizer, [PAIRS[0]] * 6, settings, seed=1, output=tmp_path)
    ids = torch.tensor([PAIRS[0].prompt_ids + PAIRS[0].chosen_ids])
    logps = new_model()(input_ids=ids).logits.log_softmax(-1)
    written = [logps[0, position - 1, ids[0, position]].item() for position in (2, 4)]
    assert outcome.curve[0].loss == pytest.approx(math.log(2) - sum(written) / 2, abs=1e-4)


def test_an_adapter_learns_against_the_base_without_it(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    settings = QUICK.model_copy(update={"lr": 1e-2})
    outcome = dpo.fit(new_model(), tokenizer, PAIRS, settings, seed=1, output=tmp_path, adapter={"r": 4})
    assert outcome.curve[0].loss == pytest.approx(math.log(2), abs=1e-5)
    assert outcome.curve[-1].metrics["margins"] > 0
    assert (outcome.checkpoint / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("pair", "culprit"),
    [
        (PairSample([2], [7, 9], [1], [8], [1]), "preferred trajectory 0"),
        (PairSample([2], [7], [1], [8], [0]), "rejected trajectory 0"),
        (PairSample([], [7], [1], [8], [1]), "prompt of pair 0"),
    ],
)
def test_a_bad_pair_is_refused(
    pair: PairSample, culprit: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=culprit):
        dpo.fit(new_model(), tokenizer, [pair], QUICK, seed=1, output=tmp_path)
