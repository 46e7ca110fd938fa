"""Ids reach the policy as the engine returned them: a tokenizer that would change them on the way never gets to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.contracts.training import TokenSample
from ratchet.methods import base
from ratchet.methods.base import PairSample, RolloutSample

A, B, AB = 2, 3, 4
PROMPT, SPOKEN = [5, 6], [A, B]


@pytest.fixture
def merging() -> Any:
    """A tokenizer that joins `a` and `b`: what it decodes from [A, B] it encodes as [AB]."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<eos>": 1, "a": A, "b": B, "ab": AB, **{chr(94 + at): at for at in range(5, 32)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(BPE(vocabulary, [("a", "b")])), pad_token="<pad>", eos_token="<eos>"
    )
    assert tokenizer.encode(tokenizer.decode(SPOKEN).replace(" ", ""), add_special_tokens=False) == [AB]
    return tokenizer


def learns(needs: str) -> tuple[Any, ...]:
    if needs == "demonstrations":
        return (
            [TokenSample(PROMPT + SPOKEN + [9] + SPOKEN, [False] * 2 + [True] * 2 + [False] + [True] * 2, None, ())],
        )
    if needs == "pairs":
        return ([PairSample(PROMPT, [*SPOKEN, 9, *SPOKEN], [1, 1, 0, 1, 1], [B, A], [1, 1])],)
    episode = RolloutSample(PROMPT, [*SPOKEN, 9, *SPOKEN], [1, 1, 0, 1, 1], None, 1.0, {})
    worse = RolloutSample(PROMPT, [B, A], [1, 1], None, 0.0, {})
    return (["x"], lambda model, tasks, step: [episode, worse])


@pytest.mark.parametrize("name", ["sft", "dpo", "orpo", "grpo", "gspo", "rloo"])
def test_the_policy_reads_the_very_ids_and_nothing_is_encoded(
    name: str, merging: Any, new_model: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = base.method(name)
    changes = (
        {"steps": 1, "prompts_per_step": 1, "group_size": 2, "iterations": 1}
        if method.NEEDS == "tasks"
        else {"epochs": 1, "batch_size": 1}
    )
    model, read = new_model(), []

    def keep(module: Any, arguments: tuple[Any, ...]) -> None:
        read.extend(arguments[0].tolist())

    model.get_input_embeddings().register_forward_pre_hook(keep)

    def encode(*_: Any, **__: Any) -> None:
        raise AssertionError("something was tokenised")

    monkeypatch.setattr(type(merging), "_encode_plus", encode)
    method.fit(model, merging, *learns(method.NEEDS), method.Settings(**changes), seed=1, output=tmp_path)
    seen = {tuple(token for token in row if token) for row in read}
    expected = {(*PROMPT, *SPOKEN, 9, *SPOKEN)} | (set() if name == "sft" else {(*PROMPT, B, A)})
    assert seen == expected


def test_the_tokenizer_of_this_test_does_encode_through_what_is_watched(
    merging: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above could not fail."""
    asked: list[int] = []
    original = type(merging)._encode_plus

    def counted(*arguments: Any, **named: Any) -> Any:
        asked.append(1)
        return original(*arguments, **named)

    monkeypatch.setattr(type(merging), "_encode_plus", counted)
    merging.encode("ab")
    merging("ab")
    merging(["ab"])
    assert len(asked) == 3
