"""What every trained method shares: samples, settings, learning curve, outcome, and the registry of methods.

A method is a module, registered under the entry point group `ratchet.methods`, with

- `Settings`: a contract that validates the manifest's `settings`,
- `NEEDS`: what it learns from, `demonstrations`, `pairs` or `tasks`; or `cases`, where it trains no weights (see
  `ratchet.methods.harness_search`, whose `fit` is its own),
- `fit(model, tokenizer, <samples | pairs | task_ids, sampler>, settings, **common) -> Outcome`; what all methods take
  in common is `Common`.

Everything works on token ids: text is never tokenised again, so a token carries loss exactly where its mask says so.
Importing a method loads no torch; `fit` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distribution, entry_points
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Required, TypedDict, TypeVar, cast

from pydantic import Field, ValidationError

from ratchet.contracts.model import Contract
from ratchet.errors import ManifestError, NothingToLearn, TrainingError

GROUP = "ratchet.methods"
LACKING = {
    "ppo": "train with rloo or grpo, which need no value model",
    "reinforce": "train with rloo: with one update per batch it is REINFORCE with a leave-one-out baseline",
}
"""Methods of the field that TRL may lack, and what to do instead."""
T = TypeVar("T", bound=Contract)
Needs = Literal["demonstrations", "pairs", "tasks", "cases"]
Guard = Callable[[], None]


class Validation(NamedTuple):
    """How a model did on the validation tasks."""

    acceptance: float
    """Share of valid attempts that were accepted, in [0, 1]."""
    outcomes: Mapping[str, bool]
    """Whether the attempt was accepted, by task id; a task without a valid attempt is left out."""


Validate = Callable[[Any], float | Validation]


class Tokens(Protocol):
    """One sequence whose masked-in tokens the assistant wrote; `ratchet.contracts.training.TokenSample` is one."""

    @property
    def input_ids(self) -> Sequence[int]:
        """Token ids of the whole sequence."""

    @property
    def sampled_mask(self) -> Sequence[int]:
        """1 or True where the token carries loss, aligned with `input_ids`."""


class PairSample(NamedTuple):
    """Two trajectories after one prompt, the first preferred; a mask is 1 where the policy wrote the token."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    chosen_mask: list[int]
    rejected_ids: list[int]
    rejected_mask: list[int]


class StepRewards(NamedTuple):
    """Process scores of an episode: one value in [0, 1] per turn, and which turn each completion token is of."""

    values: list[float]
    turns: list[int]
    """Index of the turn per completion token, -1 where the policy did not sample it; aligned with the mask."""
    weight: float
    """Weight beside the episode's advantage of weight 1; the same in every episode of a step."""


class RolloutSample(NamedTuple):
    """One episode as the trainer sees it: one composite reward, or None where the episode is invalid."""

    prompt_ids: list[int]
    completion_ids: list[int]
    sampled_mask: list[int]
    logprobs: list[float] | None
    reward: float | None
    metrics: dict[str, float]
    steps: StepRewards | None = None
    invalid: str | None = None
    """Why it is invalid, where that is known."""
    judge_calls: int = 0
    """Items that a judge was asked to grade for it; they are paid for."""


Sampler = Callable[[Any, list[str], int], list[RolloutSample]]


class Settings(Contract):
    """Settings that every trained method has."""

    lr: float = Field(default=1e-3, gt=0, description="Highest learning rate (AdamW).")
    lr_final_share: float = Field(default=0.1, ge=0, le=1, description="Share of `lr` left at the end (cosine).")
    warmup_steps: int = Field(default=0, ge=0, description="Steps over which the learning rate rises to `lr`.")
    weight_decay: float = Field(default=0.0, ge=0, description="Decoupled weight decay.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradient norm above which gradients are scaled down.")
    micro_batch: int | None = Field(default=None, ge=1, description="Rows per forward pass; None for the whole batch.")
    precision: Literal["float32", "bfloat16"] = Field(default="float32", description="Arithmetic of the trainer.")
    validate_every: int | None = Field(
        default=None, ge=1, description="Steps between validations; None for once per epoch, or at the end without one."
    )
    checkpoint_every: int | None = Field(
        default=None, ge=1, description="Steps between checkpoints to resume from; None for at every validation."
    )
    guard_every: int = Field(
        default=10, ge=1, description="Steps between rechecks of the training right; every validation rechecks it too."
    )
    divergence_factor: float = Field(
        default=3.0,
        gt=1,
        description="The run stops when its mean loss of 5 steps exceeds this multiple of the first loss, and 1.",
    )


class Passes(Settings):
    """Settings of a method that goes over a fixed set of rows."""

    epochs: float = Field(default=1.0, gt=0, description="Passes over the data.")
    batch_size: int = Field(default=16, ge=1, description="Demonstrations or pairs per step.")
    max_steps: int | None = Field(default=None, ge=1, description="Stop after so many steps, whatever `epochs` says.")


class Adapter(Contract):
    """LoRA settings, as the manifest's `adapter` gives them (Hu et al., 2021, arXiv:2106.09685)."""

    r: int = Field(default=8, ge=1, description="Rank.")
    alpha: int = Field(default=16, ge=1, description="Scale: the update is multiplied by alpha / r.")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout on the adapter's input.")
    target_modules: tuple[str, ...] | Literal["all-linear"] = Field(
        default="all-linear", description="Names of the linear layers that get an adapter."
    )


Stopped = Literal["finished", "wall_budget", "cost_budget"]


class Curve(Contract):
    """One row of the learning curve; None where the method has no such figure or the step did not measure it."""

    step: int = Field(description="Optimizer step, from 1.")
    loss: float | None = Field(description="Training loss of the step.")
    reward: float | None = Field(default=None, description="Mean reward over the valid episodes of the step.")
    kl: float | None = Field(default=None, description="KL to the starting policy per token, in nats.")
    entropy: float | None = Field(default=None, description="Entropy per token that carries loss, in nats.")
    length: float | None = Field(default=None, description="Mean number of sampled tokens per valid episode.")
    invalid_share: float | None = Field(default=None, description="Share of invalid episodes in the step.")
    invalid: dict[str, int] = Field(default_factory=dict, description="Invalid episodes of the step by reason.")
    judge_calls: int | None = Field(default=None, description="Items that a judge graded in the step, or None.")
    validation_acceptance: float | None = Field(default=None, description="Acceptance on the validation tasks.")
    lr: float | None = Field(default=None, description="Learning rate of the step.")
    grad_norm: float | None = Field(default=None, description="Gradient norm before clipping.")
    seconds: float = Field(description="Wall time since the start of training, in seconds, resumed time included.")
    metrics: dict[str, float] = Field(default_factory=dict, description="Further figures of the method or episodes.")


class Outcome(NamedTuple):
    """What a training run leaves behind."""

    checkpoint: Path
    """Folder in Hugging Face format with full weights (an adapter is merged) and tokenizer."""
    adapter: Path | None
    """Folder of the adapter alone, where one was trained."""
    step: int
    """Optimizer step of the checkpoint."""
    validation: float | None
    """Its acceptance on validation; None without validation."""
    curve: list[Curve]
    seconds: float
    """Wall time of training, resumed time included."""
    stopped: Stopped
    """Why training ended."""
    resumed_from: int | None
    """Step of the checkpoint that an interrupted run went on from."""
    outcomes: Mapping[str, bool] | None = None
    """What the checkpoint did on each validation task, where `validate` tells."""


class Spend(NamedTuple):
    """A budget in money."""

    limit: float
    """Cost at which training stops, in the currency of the price list."""
    cost: Callable[[float, int], float]
    """Cost of so many seconds of training and so many judged items, resumed parts included."""


class Common(TypedDict, total=False):
    """What `fit` of every method takes by keyword."""

    seed: Required[int]
    """Same seed, same data, same threads: same weights (float32 on CPU)."""
    output: Required[Path]
    """Folder of the run; an interrupted run in it is gone on with."""
    validate: Validate | None
    """Acceptance of the model on validation tasks; chooses the checkpoint."""
    guard: Guard | None
    """Rechecks the training right; its error ends the run."""
    max_wall_s: float
    """Wall budget in seconds; unlimited if left out."""
    spend: Spend | None
    """Budget in money; None or left out for none."""
    adapter: Mapping[str, Any] | None
    """LoRA settings, or None for full weights."""
    name: str
    """Shown in progress lines and errors; the method's name if left out."""


class Method(Protocol):
    """A module in the group `ratchet.methods`."""

    Settings: type[Settings]
    NEEDS: Needs
    fit: Callable[..., Outcome]


def method(name: str) -> Method:
    """Load a method by its entry point name.

    Raises:
        ManifestError: no installed package registers it.
    """
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        refuse_lacking(name, sorted(found))
        raise ManifestError(
            "methods.method", seen=name, rule=f"it must be one of {sorted(found)}", remedy="correct the name"
        )
    return cast(Method, found[name].load())


def refuse_lacking(name: str, known: Sequence[str]) -> None:
    """Refuse a method of the field that the installed TRL has no trainer for; return for any other name.

    Raises:
        ManifestError: names the method and the installed version of TRL.
    """
    if name not in LACKING:
        return
    trl = distribution("trl")
    places = {f"trl/trainer/{name}_trainer.py", f"trl/experimental/{name}/{name}_trainer.py"}
    if not places & {str(file) for file in trl.files or ()}:
        raise ManifestError(
            "methods.method",
            seen=name,
            rule=f"the installed TRL {trl.version} has no trainer for it, and Ratchet imitates none",
            remedy=f"{LACKING[name]}, or use one of {list(known)}",
        )


def parse(contract: type[T], values: Mapping[str, Any], where: str) -> T:
    """Validate settings from a manifest.

    Raises:
        ManifestError: one message with every mistake; `where` names the section, e.g. `methods.sft.settings`.
    """
    try:
        return contract.model_validate(dict(values))
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'settings'} is {item['input']!r}: {item['msg']}"
            for item in error.errors()
        )
        raise ManifestError(where, rule=mistakes, remedy="correct every field named here") from None


def check_pairs(name: str, pairs: Sequence[PairSample]) -> None:
    """Refuse pairs that cannot teach.

    Raises:
        NothingToLearn: there is no pair.
        TrainingError: one has no prompt or a bad mask.
    """
    if not pairs:
        raise NothingToLearn(
            f"data of {name}",
            seen="no pair",
            rule="a pair is an accepted and a rejected trajectory of one task",
            remedy="sample more episodes per task, or name agents whose logs hold both",
        )
    for index, pair in enumerate(pairs):
        check_masks(f"{name}: preferred trajectory {index}", pair.chosen_ids, pair.chosen_mask)
        if not pair.prompt_ids:
            raise TrainingError(f"{name}: prompt of pair {index}", rule="at least one token", remedy="leave it out")
        check_masks(f"{name}: rejected trajectory {index}", pair.rejected_ids, pair.rejected_mask)


def check_masks(where: str, ids: Sequence[int], mask: Sequence[int]) -> None:
    """Refuse a sequence whose mask is not aligned or marks no token.

    Raises:
        TrainingError: names the sequence.
    """
    if len(ids) != len(mask):
        raise TrainingError(
            where,
            seen=len(mask),
            rule=f"the mask must have one entry for each of the {len(ids)} tokens",
            remedy="build the sample from the ids that the engine returned",
        )
    if not any(mask):
        raise TrainingError(where, rule="at least one token must carry loss", remedy="leave the sample out")
