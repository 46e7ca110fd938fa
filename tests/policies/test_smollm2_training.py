"""The real checkpoint learns: with an adapter on SmolLM2, SFT's loss falls, and DPO and GRPO move the adapter."""

from pathlib import Path
from typing import Any

import pytest
from chat_world import chat_harness

from ratchet.contracts.environment import Message, ToolCall
from ratchet.methods import dpo, grpo, sft
from ratchet.methods.base import Outcome, PairSample, RolloutSample
from ratchet.policies import smollm2
from ratchet.policies.checkpoint import load, save
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.engine import Session

ADAPTER = {"r": 4, "alpha": 8, "target_modules": ("q_proj", "v_proj")}
GOOD = [("next_fix", "1/8 eq_to_ne if"), ("apply_fix", "applied"), ("submit", "submitted")]
BAD = [("submit", "submitted")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2")
    save(*smollm2.dequantised(smollm2.weights_file()), folder)
    return folder


@pytest.fixture
def policy(checkpoint: Path) -> tuple[Any, Any, Rendering]:
    model, tokenizer = load(checkpoint)
    told = chat_harness().told[1:4]
    return model, tokenizer, Rendering(tokenizer, chat_harness(told=told))


def episode(rendering: Rendering, calls: list[tuple[str, str]]) -> tuple[list[int], list[int], list[int]]:
    prompt = rendering.prompt([Message(role="user", content="failing 2/4 high")])
    ids, mask = [], []
    for index, (name, _) in enumerate(calls):
        read = rendering.result(calls[index - 1][1]) if index else []
        turn = rendering.turn("", ToolCall(name=name))
        ids += [*read, *turn]
        mask += [0] * len(read) + [1] * len(turn)
    return prompt, ids, mask


def moved(outcome: Outcome) -> float:
    """Largest weight of the adapter's second halves, which are zero before the first update."""
    from safetensors.torch import load_file

    assert outcome.adapter is not None
    weights = load_file(outcome.adapter / "adapter_model.safetensors")
    return max(float(weight.abs().max()) for name, weight in weights.items() if "lora_B" in name)


@pytest.mark.slow
def test_the_loss_of_sft_falls(policy: tuple[Any, Any, Rendering], tmp_path: Path) -> None:
    model, tokenizer, rendering = policy
    prompt, ids, mask = episode(rendering, GOOD)
    sample = type("Sample", (), {"input_ids": prompt + ids, "sampled_mask": [0] * len(prompt) + mask})
    settings = sft.Settings(lr=5e-3, epochs=3, batch_size=1)
    outcome = sft.fit(model, tokenizer, [sample], settings, seed=0, output=tmp_path, adapter=ADAPTER)
    losses = [row.loss for row in outcome.curve]
    assert losses[-1] < losses[0] / 1.5
    assert moved(outcome) > 0


@pytest.mark.slow
def test_a_step_of_dpo_moves_the_adapter(policy: tuple[Any, Any, Rendering], tmp_path: Path) -> None:
    model, tokenizer, rendering = policy
    prompt, good, good_mask = episode(rendering, GOOD)
    _, bad, bad_mask = episode(rendering, BAD)
    pair = PairSample(prompt, good, good_mask, bad, bad_mask)
    settings = dpo.Settings(lr=1e-3, epochs=1, batch_size=1)
    outcome = dpo.fit(model, tokenizer, [pair], settings, seed=0, output=tmp_path, adapter=ADAPTER)
    assert outcome.step == 1
    assert moved(outcome) > 0


@pytest.mark.slow
def test_a_step_of_grpo_on_sampled_turns_moves_the_adapter(policy: tuple[Any, Any, Rendering], tmp_path: Path) -> None:
    model, tokenizer, rendering = policy
    prompt = rendering.prompt([Message(role="user", content="failing 2/4 high")])
    decoding = chat_harness().decoding.model_copy(update={"max_tokens_per_turn": 12})

    def sampler(current: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        session = Session(current, rendering.end, decoding, [f"{step}/{row}" for row in range(len(task_ids))])
        turns = session.turn(dict.fromkeys(range(len(task_ids)), prompt))
        # Longer texts are preferred: a reward in which sampled turns of a fixed number of tokens differ.
        lengths = [len(tokenizer.decode(turn.ids)) for _, turn in sorted(turns.items())]
        return [
            RolloutSample(prompt, turn.ids, [1] * len(turn.ids), turn.logprobs, length / 100, {})
            for length, (_, turn) in zip(lengths, sorted(turns.items()), strict=True)
        ]

    settings = grpo.Settings(lr=1e-3, steps=1, prompts_per_step=1, group_size=4, track_kl=False)
    outcome = grpo.fit(model, tokenizer, ["a"], sampler, settings, seed=0, output=tmp_path, adapter=ADAPTER)
    assert outcome.step == 1
    assert moved(outcome) > 0
