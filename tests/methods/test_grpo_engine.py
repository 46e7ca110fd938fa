"""The real engine, with its kept cache and ragged batches, under the trainer: both must mean the same log-probs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.contracts.policy import Decoding
from ratchet.methods import base, grpo
from ratchet.methods.base import RolloutSample
from ratchet.rollouts.engine import Session

END = 1


def sample(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
    """Two turns of up to four tokens, with a tool result of varying length between; reward: tokens drawn."""
    decoding = Decoding(temperature=1.0, max_tokens_per_turn=4)
    session = Session(model, END, decoding, [f"{step}-{index}-{task}" for index, task in enumerate(task_ids)])
    prompts = [[2 + int(task) % 5] * (1 + int(task) % 3) for task in task_ids]
    first = session.turn(dict(enumerate(prompts)))
    results = {row: [9] * (1 + row % 3) for row in first}
    second = session.turn(results)
    return [
        RolloutSample(
            prompts[row],
            first[row].ids + results[row] + second[row].ids,
            [1] * len(first[row].ids) + [0] * len(results[row]) + [1] * len(second[row].ids),
            first[row].logprobs + [0.0] * len(results[row]) + second[row].logprobs,
            float(sum(token % 2 for token in first[row].ids + second[row].ids)),
            {},
        )
        for row in range(len(task_ids))
    ]


def test_engine_and_trainer_agree_on_every_sampled_token(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    import torch

    episodes: list[RolloutSample] = []

    def keep(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        episodes.extend(sample(model, task_ids, step))
        return episodes

    outcomes = []
    for ratio in ("trainer", "sampler"):
        episodes.clear()
        settings = grpo.Settings(steps=1, prompts_per_step=4, group_size=4, ratio=ratio)
        tasks = [str(index) for index in range(8)]
        outcomes.append(grpo.fit(new_model(), tokenizer, tasks, keep, settings, seed=1, output=tmp_path / ratio))
    for episode in episodes:
        ids = torch.tensor([episode.prompt_ids + episode.completion_ids])
        with torch.no_grad():
            scores = new_model()(input_ids=ids).logits[0].log_softmax(-1)
        for at, (bit, logprob) in enumerate(zip(episode.sampled_mask, episode.logprobs or [], strict=True)):
            position = len(episode.prompt_ids) + at
            if bit:
                assert scores[position - 1, ids[0, position]].item() == pytest.approx(logprob, abs=1e-4)
    first, second = (outcome.curve[0] for outcome in outcomes)
    assert first.loss == pytest.approx(second.loss, abs=1e-5)
    assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-4)


@pytest.mark.parametrize("name", ["grpo", "gspo", "rloo"])
def test_every_method_that_acts_computes_the_engines_log_probs(
    name: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.trainer.grpo_trainer import GRPOTrainer
    from trl.trainer.rloo_trainer import RLOOTrainer

    trainer = RLOOTrainer if name == "rloo" else GRPOTrainer
    original = trainer._get_per_token_logps_and_entropies
    episodes: list[RolloutSample] = []
    seen: list[tuple[tuple[int, ...], list[float]]] = []

    def keep(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        episodes.extend(sample(model, task_ids, step))
        return episodes

    def watched(
        self: Any, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, *others: Any, **more: Any
    ) -> Any:
        found = original(self, model, input_ids, attention_mask, logits_to_keep, *others, **more)
        for ids, real, logps in zip(input_ids, attention_mask.bool(), found[0].detach(), strict=True):
            seen.append((tuple(ids[real].tolist()), logps[real[-logits_to_keep:]].tolist()))
        return found

    monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", watched)
    method = base.method(name)
    settings = method.Settings(steps=1, prompts_per_step=4, group_size=4, iterations=1, skip_flat=False)
    tasks = [str(index) for index in range(8)]
    method.fit(new_model(), tokenizer, tasks, keep, settings, seed=1, output=tmp_path)
    by_ids = {(*one.prompt_ids, *one.completion_ids): one for one in episodes}
    assert {ids for ids, _ in seen} == by_ids.keys()
    for ids, logps in seen:
        episode = by_ids[ids]
        sampled = [at for at, bit in enumerate(episode.sampled_mask) if bit]
        assert [logps[at] for at in sampled] == pytest.approx(
            [(episode.logprobs or [])[at] for at in sampled], abs=1e-4
        )
