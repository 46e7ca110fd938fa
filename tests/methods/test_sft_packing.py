"""Packing: the same training without padding, and refused where one sequence would see another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.contracts.training import TokenSample
from ratchet.errors import ManifestError
from ratchet.methods import sft


def trace(start: int, turn: int) -> TokenSample:
    """A prompt of two tokens, a turn of `turn` tokens, and a tool result."""
    ids = [start, 3, *range(7, 7 + turn), 9]
    return TokenSample(ids, [False] * 2 + [True] * turn + [False], None, ())


ROWS = [trace(2 + index % 5, 1 + index % 4) for index in range(8)]


@pytest.mark.parametrize("micro", [None, 2])
def test_packed_demonstrations_teach_what_padded_ones_do(
    micro: int | None, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    figures = []
    for packing in (False, True):
        settings = sft.Settings(epochs=2, batch_size=4, lr=1e-2, packing=packing, micro_batch=micro)
        outcome = sft.fit(new_model(), tokenizer, ROWS, settings, seed=1, output=tmp_path / str(packing))
        figures.append([(row.loss, row.grad_norm) for row in outcome.curve])
    for padded, packed in zip(*figures, strict=True):
        assert packed == pytest.approx(padded, rel=1e-3)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_policy_whose_attention_would_leak_is_refused_by_name(tokenizer: Any, tmp_path: Path) -> None:
    """Bloom's bias is by distance in the row, so that a second sequence sees the first one's shadow."""
    import torch
    from transformers import BloomConfig, BloomForCausalLM

    torch.manual_seed(0)
    model = BloomForCausalLM(BloomConfig(vocab_size=32, hidden_size=32, n_layer=2, n_head=2))
    settings = sft.Settings(packing=True)
    with pytest.raises(ManifestError, match=r"sft\.settings\.packing is 'log-probs that differ.*BloomForCausalLM"):
        sft.fit(model, tokenizer, ROWS, settings, seed=1, output=tmp_path)


def test_completion_only_is_the_last_turn_alone() -> None:
    trace = TokenSample(
        [2, 3, 7, 8, 9, 9, 10, 11, 9], [False, False, True, True, False, False, True, True, False], None, ()
    )
    assert sft.labels(trace) == [-100, -100, 7, 8, -100, -100, 10, 11, -100]
    assert sft.labels(trace, "completion") == [-100, -100, -100, -100, -100, -100, 10, 11, -100]


def test_completion_only_leaves_earlier_turns_out_of_the_loss(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    import torch

    trace = TokenSample([2, 3, 7, 9, 8, 12], [False, False, True, False, True, True], None, ())
    settings = sft.Settings(epochs=1, batch_size=1, loss_on="completion")
    outcome = sft.fit(new_model(), tokenizer, [trace], settings, seed=1, output=tmp_path)
    logps = new_model()(input_ids=torch.tensor([trace.input_ids])).logits[0].log_softmax(-1)
    expected = -(logps[3, 8] + logps[4, 12]).item() / 2
    assert outcome.curve[0].loss == pytest.approx(expected, abs=1e-5)
