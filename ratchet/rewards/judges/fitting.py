"""Making a small judge from scratch: a tokenizer and a tiny causal model, fitted to the labels of the tuning split.

It proves the way of a local judge where no larger model is at hand, and grades only what it was fitted to: short texts
of one kind. Only the tokens of the category carry loss; classes are balanced by weight. The same items, labels and seed
give the same checkpoint on the same machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratchet.contracts.judge import JudgeFit
from ratchet.errors import RatchetError
from ratchet.rewards.calibration.calibrate import majority
from ratchet.rewards.calibration.labels import Label, latest
from ratchet.rewards.judges.local import prompt_of
from ratchet.rewards.judges.rubric import Item, Rubric


def fit_judge(
    rubric: Rubric,
    items: Mapping[str, Item],
    labels: Sequence[Label],
    folder: Path,
    settings: JudgeFit,
    *,
    seed: int,
    progress: Callable[[], object] | None = None,
) -> list[float]:
    """Fit a small judge and write its checkpoint.

    Args:
        rubric: what it will grade by.
        items: items by id.
        labels: labels of the tuning split; others are refused.
        folder: where the checkpoint is written, in Hugging Face format.
        settings: sizes and rates.
        seed: of weights and order.
        progress: called once for every step.

    Returns:
        Mean loss of each epoch.

    Raises:
        RatchetError: a label of another split is among them, or a category has no label.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    truth = majority(latest(labels))
    if any(label.split != "tuning" for label in labels) or set(truth.values()) != set(rubric.categories):
        raise RatchetError(
            f"judge of {rubric.name!r}",
            seen=dict(Counter(label.split for label in labels)),
            rule="it learns from labels of the tuning split alone, and needs some of every category",
            remedy="keep calibration and anchor labels away from it, and label more items",
        )
    tokenizer = _tokenizer([prompt_of(rubric, items[name], None) for name in truth], rubric, settings)
    rows = []
    for name, category in truth.items():
        prompt = tokenizer(prompt_of(rubric, items[name], tokenizer))["input_ids"]
        ending = tokenizer(f" {category}")["input_ids"]
        if len(prompt) + len(ending) <= settings.context:
            rows.append((prompt, ending, category))
    shares = Counter(category for *_, category in rows)
    weights = {category: len(rows) / (len(shares) * count) for category, count in shares.items()}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(tokenizer),
                hidden_size=settings.width,
                intermediate_size=4 * settings.width,
                num_hidden_layers=settings.layers,
                num_attention_heads=settings.width // 8,
                max_position_embeddings=settings.context,
                bos_token_id=None,
                eos_token_id=None,
                pad_token_id=None,
            )
        )
        losses = _train(model, rows, weights, settings, progress)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return losses


def _train(
    model: Any,
    rows: Sequence[tuple[list[int], list[int], str]],
    weights: Mapping[str, float],
    settings: JudgeFit,
    progress: Callable[[], object] | None,
) -> list[float]:
    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    steps = settings.epochs * -(-len(rows) // settings.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: max(0.0, 1 - step / steps))
    losses = []
    for _ in range(settings.epochs):
        order = torch.randperm(len(rows)).tolist()
        summed = 0.0
        for start in range(0, len(order), settings.batch_size):
            chosen = [rows[at] for at in order[start : start + settings.batch_size]]
            width = max(len(prompt) + len(ending) for prompt, ending, _ in chosen)
            tokens, mask = torch.zeros((len(chosen), width), dtype=torch.long), torch.zeros((len(chosen), width))
            targets = torch.zeros((len(chosen), width))
            for number, (prompt, ending, category) in enumerate(chosen):
                whole = len(prompt) + len(ending)
                tokens[number, :whole] = torch.tensor(prompt + ending)
                mask[number, :whole] = 1
                targets[number, len(prompt) : whole] = weights[category] / len(ending)
            logits = model(input_ids=tokens, attention_mask=mask.long()).logits[:, :-1]
            each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
            loss = (each * targets[:, 1:]).sum() / len(chosen)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            summed += float(loss.detach()) * len(chosen)
            if progress:
                progress()
        losses.append(summed / len(rows))
    return losses


def _tokenizer(texts: Sequence[str], rubric: Rubric, settings: JudgeFit) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([*texts, *(f" {category}" for category in rubric.categories)], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner)
