from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.contracts.training import TokenSample
from ratchet.errors import RightsError, TrainingError
from ratchet.methods import sft


def sample(ids: list[int], mask: list[int]) -> TokenSample:
    return TokenSample(ids, [bool(bit) for bit in mask], None, (1,))


DEMONSTRATIONS = [sample([2 + index % 5, 3, 7, 9, 7], [0, 0, 1, 0, 1]) for index in range(12)]
QUICK = sft.Settings(epochs=4, batch_size=6, lr=1e-2)


def weights(model: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(bool((one[name] == other[name]).all()) for name in one)


def test_targets_are_the_masked_in_tokens_and_nothing_else() -> None:
    assert sft.labels(sample([4, 5, 6, 9], [0, 1, 1, 0])) == [-100, 5, 6, -100]


def test_the_loss_is_the_mean_over_the_masked_in_tokens(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    import torch

    data = [sample([2, 3, 7, 9, 8], [0, 0, 1, 0, 1]), sample([4, 3, 11, 9], [0, 0, 1, 0])]
    values = []
    for row in data:
        logps = new_model()(input_ids=torch.tensor([row.input_ids])).logits[0].log_softmax(-1)
        values += [logps[at - 1, row.input_ids[at]] for at, bit in enumerate(row.sampled_mask) if bit]
    loss = -torch.stack(values).mean()
    settings = sft.Settings(epochs=1, batch_size=2)
    outcome = sft.fit(new_model(), tokenizer, data, settings, seed=1, output=tmp_path)
    assert outcome.curve[0].loss == pytest.approx(loss.item(), abs=1e-5)


def test_loss_falls_and_the_kept_checkpoint_is_the_best_on_validation(
    new_model: Callable[..., Any], tokenizer: Any, likes_target: Callable[[Any], float], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    outcome = sft.fit(new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path, validate=likes_target)
    assert outcome.curve[-1].loss is not None
    assert outcome.curve[0].loss is not None
    assert outcome.curve[-1].loss < outcome.curve[0].loss - 0.5
    assert [row.step for row in outcome.curve] == list(range(1, 9))
    measured = {row.step: row.validation_acceptance for row in outcome.curve if row.validation_acceptance is not None}
    assert sorted(measured) == [2, 4, 6, 8]
    assert outcome.validation == max(measured.values()) == measured[outcome.step]
    kept = AutoModelForCausalLM.from_pretrained(outcome.checkpoint)
    assert likes_target(kept.eval()) == pytest.approx(outcome.validation, rel=1e-5)


def test_a_checkpoint_that_validates_worse_is_not_kept(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    answers = iter([0.2, 0.6, 0.4, 0.6])
    outcome = sft.fit(
        new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path, validate=lambda _: next(answers)
    )
    assert (outcome.step, outcome.validation) == (4, 0.6)


def test_tokens_that_the_assistant_did_not_write_carry_no_loss(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """A tool result at the end is nobody's context: whatever it holds, the weights come out the same."""
    results = []
    for number, (last, mask) in enumerate([(11, 0), (23, 0), (23, 1)]):
        model = new_model()
        data = [sample([2, 3, 7, last], [0, 0, 1, mask])] * 6
        sft.fit(model, tokenizer, data, QUICK, seed=1, output=tmp_path / str(number))
        results.append(weights(model))
    assert equal(results[0], results[1])
    assert not equal(results[1], results[2])


def test_same_seed_same_weights_and_another_seed_others(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    results = []
    for number, seed in enumerate([5, 5, 6]):
        model = new_model()
        sft.fit(model, tokenizer, DEMONSTRATIONS, QUICK, seed=seed, output=tmp_path / str(number))
        results.append(weights(model))
    assert equal(results[0], results[1])
    assert not equal(results[0], results[2])


def test_an_interrupted_run_ends_in_the_weights_of_an_uninterrupted_one(
    new_model: Callable[..., Any], tokenizer: Any, likes_target: Callable[[Any], float], tmp_path: Path
) -> None:
    whole = new_model()
    first = sft.fit(whole, tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path / "whole", validate=likes_target)
    calls = 0

    def power_cut(model: Any) -> float:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return likes_target(model)

    output = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        sft.fit(new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=output, validate=power_cut)
    half_written = output / "checkpoints" / "checkpoint-5"
    half_written.mkdir()
    resumed = new_model()
    second = sft.fit(resumed, tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=output, validate=likes_target)
    assert second.resumed_from == 4
    assert not half_written.exists()
    assert equal(weights(whole), weights(resumed))
    assert [row.step for row in second.curve] == [row.step for row in first.curve]
    assert [row.loss for row in second.curve] == [row.loss for row in first.curve]
    assert (second.step, second.validation) == (first.step, first.validation)


def test_a_run_cut_before_its_first_checkpoint_starts_over_without_double_rows(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    def power_cut(model: Any) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sft.fit(new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path, validate=power_cut)
    again = sft.fit(new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path)
    assert again.resumed_from is None
    assert len((tmp_path / "curves.jsonl").read_text(encoding="utf-8").splitlines()) == len(again.curve) == 8


def test_a_finished_run_is_not_trained_again(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> None:
    first = sft.fit(new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path, validate=lambda _: 0.5)
    again = sft.fit(new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path, validate=lambda _: 0.9)
    assert again.resumed_from == 8
    assert (again.step, again.validation, again.curve) == (first.step, first.validation, first.curve)


def test_a_folder_of_another_run_is_not_gone_on_with(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    sft.fit(new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path)
    again = sft.fit(new_model(seed=3), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path)
    assert again.resumed_from is None
    assert len(again.curve) == 8


def test_the_wall_budget_stops_with_a_checkpoint(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> None:
    outcome = sft.fit(
        new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path, validate=lambda _: 0.5, max_wall_s=1e-9
    )
    assert outcome.stopped == "wall_budget"
    assert (outcome.step, len(outcome.curve)) == (1, 1)
    assert (outcome.checkpoint / "model.safetensors").exists()


@pytest.mark.parametrize("good_calls", [0, 1])
def test_a_withdrawn_right_stops_training_at_the_start_or_on_the_way(
    good_calls: int, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    calls = 0

    def guard() -> None:
        nonlocal calls
        calls += 1
        if calls > good_calls:
            raise RightsError("grant g1", seen="withdrawn", rule="the right must hold", remedy="ask for it")

    settings = QUICK.model_copy(update={"guard_every": 3, "validate_every": 8})
    with pytest.raises(RightsError, match="grant g1 is 'withdrawn'"):
        sft.fit(new_model(), tokenizer, DEMONSTRATIONS, settings, seed=1, output=tmp_path, guard=guard)
    curve = tmp_path / "curves.jsonl"
    steps = len(curve.read_text(encoding="utf-8").splitlines()) if curve.exists() else 0
    assert steps == 2 * good_calls


def test_a_right_is_rechecked_at_every_epoch_of_short_data(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    asked: list[int] = []
    curve = tmp_path / "curves.jsonl"
    settings = QUICK.model_copy(update={"guard_every": 1000})
    sft.fit(
        new_model(), tokenizer, DEMONSTRATIONS, settings, seed=1, output=tmp_path,
        guard=lambda: asked.append(len(curve.read_text().splitlines()) + 1 if curve.exists() else 0),
    )  # fmt: skip
    steps = len(curve.read_text().splitlines())
    epoch = math.ceil(len(DEMONSTRATIONS) / settings.batch_size)
    assert asked == [0, *range(epoch, steps + 1, epoch)]
    assert len(asked) > 2


def test_weights_that_are_not_finite_stop_the_run_with_a_diagnosis(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    model = new_model()
    model.model.norm.weight.data[0] = math.nan
    with pytest.raises(TrainingError, match=r"gradient of .* must be finite .* lr 0\.01"):
        sft.fit(model, tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path)


def test_a_diverging_loss_stops_the_run_with_a_diagnosis(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    contradictory = [sample([2, 3, token], [0, 0, 1]) for token in range(4, 28)]
    settings = QUICK.model_copy(update={"lr": 50.0, "epochs": 20.0})
    with pytest.raises(TrainingError, match=r"last losses \[.*lower lr"):
        sft.fit(new_model(), tokenizer, contradictory, settings, seed=1, output=tmp_path)
    assert len((tmp_path / "curves.jsonl").read_text(encoding="utf-8").splitlines()) < 80


@pytest.mark.parametrize(("ids", "mask"), [([2, 3], [1]), ([2, 3], [0, 0])])
def test_a_bad_mask_is_refused(
    ids: list[int], mask: list[int], new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match="demonstration 1"):
        sft.fit(new_model(), tokenizer, [DEMONSTRATIONS[0], sample(ids, mask)], QUICK, seed=1, output=tmp_path)


def test_micro_batches_give_the_gradient_of_the_whole_batch(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    data = [sample([2, 3] + [7] * count, [0, 0] + [1] * count) for count in (1, 2, 5, 3, 1, 6)]
    norms = []
    for micro in (None, 2):
        settings = QUICK.model_copy(update={"micro_batch": micro, "max_steps": 1})
        outcome = sft.fit(new_model(), tokenizer, data, settings, seed=1, output=tmp_path / str(micro))
        norms.append(outcome.curve[0].grad_norm)
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_an_adapter_leaves_the_base_alone_and_merges(
    new_model: Callable[..., Any], tokenizer: Any, likes_target: Callable[[Any], float], tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    outcome = sft.fit(
        new_model(),
        tokenizer,
        DEMONSTRATIONS,
        QUICK,
        seed=1,
        output=tmp_path,
        validate=likes_target,
        adapter={"r": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    )
    assert outcome.adapter is not None
    assert not (outcome.adapter / "model.safetensors").exists()
    merged = AutoModelForCausalLM.from_pretrained(outcome.checkpoint).eval()
    stacked = PeftModel.from_pretrained(new_model(), outcome.adapter).eval()
    assert outcome.validation is not None
    assert likes_target(merged) == pytest.approx(outcome.validation, rel=1e-4)
    assert likes_target(stacked) == pytest.approx(outcome.validation, rel=1e-4)
    assert equal(weights(stacked.unload()), weights(new_model()))
