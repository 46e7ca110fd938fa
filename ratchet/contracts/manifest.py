"""The experiment manifest: one YAML file is the whole contract of an engagement.

It is validated and digested; every artifact of the loop carries the digest. `manifest_file.py` reads it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ratchet.contracts.canonical import digest
from ratchet.contracts.engine import EngineSection
from ratchet.contracts.environment import ActionLimits, Prices
from ratchet.contracts.judge import JudgeSection
from ratchet.contracts.model import Contract
from ratchet.contracts.policy import Codec

Slug = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
Share = Annotated[float, Field(ge=0, le=1)]
Purpose = Literal["execute", "evaluate", "train_sft", "train_preference", "train_rl", "calibrate"]


class Job(Contract):
    """What the agent is for and when its work counts."""

    description: str = Field(min_length=1, description="The job in one sentence.")
    acceptance: str = Field(min_length=1, description="The acceptance criteria in words.")


class EnvironmentSection(Contract):
    """Which environment, and the permissions that learning cannot widen."""

    name: Slug = Field(description="Entry point name in the group `ratchet.environments`.")
    version: str = Field(description="Version the experiment was written for.")
    tools: tuple[str, ...] = Field(min_length=1, description="Tools an episode may call.")
    limits: ActionLimits = Field(description="Action limits of an episode.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Settings of the environment itself.")


class BaseCheckpoint(Contract):
    """Where learning starts, and why it may."""

    checkpoint: str = Field(description="`package:starter`, `package:smollm2`, `random`, a Hugging Face folder or id.")
    licence: str = Field(description="SPDX id of the weights' licence.")
    weights_available: bool = Field(description="False for a model behind a closed API.")
    training_permitted: bool = Field(description="Whether licence and owner allow updates.")
    tenants: tuple[str, ...] = Field(default=("*",), description="Tenants that may use it; `*` for all.")
    codec: Codec = Field(default="single_token", description="How it calls tools: `single_token`, `tool_call` (JSON).")


class Grant(Contract):
    """A training right, as the manifest asks for it and the ledger records it."""

    grant_id: Slug = Field(description="Identity of the grant.")
    purposes: tuple[Purpose, ...] = Field(min_length=1, description="What the data may be used for.")
    base_models: tuple[str, ...] = Field(default=("*",), description="Base checkpoints it may train; `*` for all.")
    retention_days: int = Field(ge=1, description="Days until the right ends.")
    signed_by: str = Field(min_length=1, description="Who granted it.")


class Splits(Contract):
    """Sizes of the locked splits and what may not be shared between them."""

    train: int = Field(ge=1, description="Tasks to train on.")
    validation: int = Field(ge=1, description="Tasks to choose checkpoints on.")
    heldout: int = Field(ge=1, description="Tasks to decide on; unreadable to training.")
    group_by: tuple[Literal["repo", "issue_id", "prompt"], ...] = Field(
        default=("repo", "issue_id", "prompt"), description="Keys that keep tasks in one split."
    )


class RewardPart(Contract):
    """One weighted part of the reward."""

    verifier: str = Field(description="Verifier by name.")
    weight: float = Field(gt=0, description="Its weight; weights are normalised.")


class StepPart(Contract):
    """One weighted process score of the steps."""

    verifier: str = Field(description="Step verifier by name.")
    weight: float = Field(
        ge=0, allow_inf_nan=False, description="Its weight beside the episode's advantage of weight 1; 0 leaves it out."
    )


class Reward(Contract):
    """How outcomes become the reward of an episode."""

    parts: tuple[RewardPart, ...] = Field(min_length=1, description="Scored parts.")
    steps: tuple[StepPart, ...] = Field(
        default=(), description="Process scores that reach the trainer as rewards of single steps."
    )
    acceptance: tuple[str, ...] = Field(
        default=("hidden_tests",),
        min_length=1,
        description="Verifiers that must all give 1 for acceptance, and beside them the judge's rubric where its best "
        "grade is a condition too.",
    )
    gates: tuple[str, ...] = Field(default=(), description="Static gates; a failed one makes the reward 0.")
    call_discount: float = Field(default=0.0, ge=0, lt=1, description="Share of an accepted reward lost per call.")
    malformed_penalty: float = Field(default=0.0, ge=0, description="Subtracted per malformed or refused call.")
    tamper_penalty: float = Field(default=0.0, ge=0, description="Subtracted where a honeypot was touched.")
    canaries: tuple[Annotated[str, Field(min_length=6)], ...] = Field(
        default=(), description="Planted strings that may stand in no deliverable and in no argument of a call."
    )
    verifier_timeout_s: float = Field(
        default=300.0,
        gt=0,
        allow_inf_nan=False,
        description="Wall clock of one verification and of each verifier, in seconds; over it the episode is invalid.",
    )
    judge: JudgeSection | None = Field(default=None, description="A judge whose grade pays while it is calibrated.")
    train_on_failed_audit: bool = Field(
        default=False, description="Train by reinforcement though the audit found an exploit; the gate rejects anyway."
    )


class LearningData(Contract):
    """Which trajectories or tasks a method learns from."""

    policies: tuple[str, ...] = Field(
        default=(),
        description="Agents whose logged trajectories are demonstrations, or pairs; where pairs name none, the start "
        "policy is sampled for them.",
    )
    accepted_only: bool = Field(default=True, description="Only accepted trajectories are demonstrations.")
    rollouts_per_task: int = Field(default=4, ge=2, description="Episodes of the start policy per task, for pairs.")
    tasks: int | None = Field(default=None, ge=1, description="Number of training tasks to sample on; None for all.")


class LogSection(Contract):
    """Logs that a scripted agent of the environment makes before learning starts."""

    agent: str = Field(description="Scripted agent by name.")
    episodes: int = Field(ge=1, description="Episodes on training tasks.")
    format: Literal["atif", "openai_chat"] = Field(description="Format of the landing file.")


class MethodSection(Contract):
    """One candidate: how it is trained and from what."""

    name: Slug = Field(description="Name of the candidate.")
    method: Slug = Field(description="Entry point name in the group `ratchet.methods`.")
    start: str = Field(
        description="`base`, an earlier candidate by name, or `incumbent`: the version in production (the base where "
        "there is none)."
    )
    candidate: bool = Field(default=True, description="Whether it may be released; else it only stands in the table.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Hyper-parameters, validated by the method.")
    data: LearningData = Field(default_factory=lambda: LearningData(), description="What it learns from.")
    adapter: dict[str, Any] | None = Field(default=None, description="LoRA settings (`r`, `alpha`), or full weights.")
    max_wall_s: float = Field(default=1800.0, gt=0, description="Budget of wall time in seconds.")
    max_cost: float | None = Field(default=None, gt=0, description="Budget in money, by the price list; None for none.")


class EvaluationSection(Contract):
    """How the held-out comparison runs."""

    seeds: tuple[int, ...] = Field(min_length=1, description="Seeds per task.")
    minimum_effect: Share = Field(description="Smallest difference in acceptance worth shipping.")
    accept_underpowered: bool = Field(default=False, description="Go on though the plan cannot see that effect.")
    resamples: int = Field(default=10_000, ge=1000, description="Bootstrap resamples.")
    retries: int = Field(default=2, ge=0, description="Retries of an invalid episode.")
    max_void_share: float = Field(
        default=0.01,
        ge=0,
        le=0.01,
        description="Share of invalid tasks above which the evaluation is void; no manifest may allow more than 1 %.",
    )
    temperature: float = Field(default=1.0, ge=0, description="Decoding temperature of every arm.")
    engine: EngineSection = Field(default=EngineSection(), description="What samples held-out runs and rollouts.")
    unconfined_training: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="What happens to training where the kernel cannot keep it from the held-out data (no Landlock).",
    )


Consequence = Literal["keep", "quarantine", "retrain", "roll_back"]
"""What becomes of released versions when a right behind them ends."""


class Release(Contract):
    """Who decides, by which margins, and what happens when a right behind a version ends."""

    owner: str = Field(min_length=1, description="Accountable person.")
    authorised_rule: Literal["none", "staging", "canary", "production"] = Field(
        default="none", description="How far the gate may promote by itself; set by the owner beforehand."
    )
    four_eyes: bool = Field(default=False, description="The author of the run releases nothing alone, nor by a rule.")
    signature: Literal["optional", "required"] = Field(
        default="optional", description="`required`: nothing is promoted or served that no trusted key has signed."
    )
    max_latency_ratio: float = Field(gt=0, description="Candidate's p95 latency over the incumbent's.")
    max_cost_ratio: float = Field(gt=0, description="Candidate's variable cost per accepted run over the incumbent's.")
    max_segment_drop: Share = Field(default=0.10, description="Point drop of a segment that asks for a person.")
    canary_share: Share = Field(
        default=0.1,
        description="Share of live tasks in the canary; 0: there is none, and an approval alone opens production.",
    )
    canary_margin: float = Field(
        default=0.03, gt=0, lt=1, description="Drop in live acceptance that the canary is tested against."
    )
    canary_alpha: float = Field(default=0.05, gt=0, lt=1, description="Error of each verdict of the canary.")
    canary_horizon_pairs: int = Field(
        default=2000, ge=1, description="Pairs of live outcomes after which an undecided canary asks the owner."
    )
    on_regression: Literal["roll_back", "ask"] = Field(
        default="ask", description="What a proven regression of live tasks does; set by the owner beforehand."
    )
    horizon_runs: int = Field(default=10_000, ge=1, description="Accepted runs that the training cost is spread over.")
    on_withdrawal: Consequence = Field(
        default="quarantine",
        description="Versions that learned from a withdrawn grant: `keep` and only flag them, `quarantine` them, "
        "`roll_back` to the last clean version, or `retrain` without the data, and quarantine them at the deadline.",
    )
    on_expiry: Consequence = Field(
        default="keep", description="The same for versions that learned from a grant that ran out."
    )
    withdrawal_deadline_days: int = Field(
        default=30, ge=0, description="Days that `retrain` has before what is still affected is quarantined."
    )
    erase_ended_data: bool = Field(
        default=False, description="The daily sweep erases the data of ended grants itself; else it lists what is due."
    )


class Manifest(Contract):
    """The whole contract of one experiment."""

    experiment: Slug = Field(description="Name.")
    tenant: Slug = Field(description="Whose data and policies these are.")
    seed: int = Field(ge=0, description="Seed of the experiment; every random choice derives from it.")
    author: str = Field(min_length=1, description="Who runs it.")
    job: Job = Field(description="The job and its acceptance criteria.")
    environment: EnvironmentSection = Field(description="Environment and permissions.")
    base: BaseCheckpoint = Field(description="Base checkpoint and its eligibility.")
    grants: tuple[Grant, ...] = Field(min_length=1, description="Training rights.")
    splits: Splits = Field(description="Split sizes and grouping.")
    reward: Reward = Field(description="Reward composition.")
    methods: tuple[MethodSection, ...] = Field(min_length=1, description="Candidates, in order.")
    evaluation: EvaluationSection = Field(description="Held-out comparison.")
    prices: Prices = Field(description="Price list.")
    release: Release = Field(description="Release policy.")
    retention_days: int = Field(ge=1, description="Days that trajectories are kept.")
    max_invalid_share: Share = Field(
        default=0.02, description="Share of invalid episodes, after their retries, above which a stage stops."
    )
    invalid_retries: int = Field(
        default=2,
        ge=0,
        le=10,
        description="Retries of an invalid episode while data is made and in training; evaluation has its own.",
    )
    logs: tuple[LogSection, ...] = Field(default=(), description="First logs, made by scripted agents.")
    grown_to: str | None = Field(
        default=None,
        description="Newest batch of trajectories that asked for this retraining; None where a person did.",
    )

    @model_validator(mode="after")
    def _names_are_told_apart(self) -> Manifest:
        wrong = []
        known = {"base", "incumbent"}
        for section in self.methods:
            if section.name in known or section.name == "baseline":
                wrong.append(f"methods: the name {section.name!r} is taken; give every candidate its own name")
            if section.start not in known:
                wrong.append(
                    f"methods.{section.name}.start is {section.start!r}; start from `base`, `incumbent` or an earlier "
                    "candidate"
                )
            known.add(section.name)
        listed: dict[str, list[str | int]] = {
            "grants": [grant.grant_id for grant in self.grants],
            "environment.tools": [*self.environment.tools],
            "evaluation.seeds": [*self.evaluation.seeds],
        }
        for field, names in listed.items():
            double = sorted({name for name in names if names.count(name) > 1}, key=str)
            if double:
                wrong.append(f"{field}: {', '.join(map(repr, double))} occurs twice; name each once")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest."""
        return digest(self)

    @property
    def run_id(self) -> str:
        """Folder-safe identity of the experiment: its name and the start of its digest."""
        return f"{self.experiment}-{self.digest[:12]}"
