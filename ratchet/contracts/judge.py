"""The judge of a manifest: by which rubric it grades, what it is, what its grade pays, and when it freezes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ratchet.contracts.model import Contract


class Endpoint(Contract):
    """Where the judge is, and what a call may take."""

    url: str = Field(description="Base URL up to and with `/v1`.")
    model: str = Field(min_length=1, description="Model as the server names it.")
    api_key_env: str | None = Field(default=None, description="Environment variable that holds the key, or None.")
    timeout_s: float = Field(default=60.0, gt=0, description="Deadline of one call.")
    deadline_s: float = Field(default=300.0, gt=0, description="Deadline of one item, retries and waits included.")
    retries: int = Field(default=4, ge=0, description="Calls after the first.")
    max_tokens: int = Field(default=300, ge=16, description="Tokens that an answer may have.")
    per_million_input_tokens: float | None = Field(default=None, ge=0, description="Price in USD; None: not known.")
    per_million_output_tokens: float | None = Field(default=None, ge=0, description="Price in USD; None: not known.")


class JudgeFit(Contract):
    """How a small judge is made."""

    vocabulary: int = Field(default=600, ge=300, description="Tokens of the byte-level BPE.")
    width: int = Field(default=64, ge=8, multiple_of=8, description="Width of the model.")
    layers: int = Field(default=2, ge=1, description="Its layers.")
    context: int = Field(default=1024, ge=64, description="Longest item in tokens; longer ones are passed over.")
    epochs: int = Field(default=6, ge=1, description="Passes over the labels.")
    batch_size: int = Field(default=16, ge=1, description="Items per step.")
    lr: float = Field(default=2e-3, gt=0, description="Peak learning rate, with a linear decay to 0.")
    hardened: bool = Field(
        default=True, description="Fit also to copies of the works with praise, orders and filler around them."
    )


class DriftRule(Contract):
    """When a judge warns and when it freezes."""

    calibrated: float = Field(default=0.86, gt=0, lt=1, description="Kappa that a judge in order has.")
    floor: float = Field(default=0.78, gt=0, lt=1, description="A reading under it is a WARN.")
    drifted: float = Field(default=0.70, gt=0, lt=1, description="Kappa that must be noticed within few checks.")
    threshold: float = Field(default=6.4, gt=0, description="CUSUM, in nats, at which the judge freezes.")
    min_labels: int = Field(default=100, ge=2, description="Fewer fresh labels than this are no reading.")

    @model_validator(mode="after")
    def _ordered(self) -> DriftRule:
        if not self.drifted < self.floor < self.calibrated:
            raise ValueError("drifted must be below floor, and floor below calibrated")
        return self


class JudgeSection(Contract):
    """A judge of the reward. Its grade pays only while it is calibrated."""

    rubric: str = Field(min_length=1, description="Rubric by name, one of those that the environment states.")
    kind: Literal["local", "endpoint"] = Field(
        default="local", description="A small model fitted to the tuning labels, or a model behind an endpoint."
    )
    weight: float = Field(
        ge=0,
        allow_inf_nan=False,
        description="Weight of its grade beside those of `parts`; 0 calibrates and shows it, and pays nothing.",
    )
    labels: Literal["simulated", "experts"] = Field(
        default="simulated",
        description="`simulated`: the environment's labelling function labels what no person has labelled, and "
        "everything made of it says so. `experts`: only labels that persons brought count.",
    )
    endpoint: Endpoint | None = Field(default=None, description="Where the judge is; for kind `endpoint` alone.")
    own_agents: tuple[str, ...] = Field(
        default=(),
        description="Agents of the logs, by name, whose works come from the judge's own family of models; where any is "
        "named, the judge is audited for preferring them.",
    )
    fit: JudgeFit = Field(
        default_factory=lambda: JudgeFit(), description="How the small model is made; for kind `local` alone."
    )
    drift: DriftRule = Field(default_factory=lambda: DriftRule(), description="When it warns and when it freezes.")
    tuning_labels: int = Field(default=400, ge=2, description="Simulated labels to fit on, at most.")
    calibration_labels: int = Field(default=120, ge=2, description="Simulated labels to calibrate on, at most.")
    anchor_labels: int = Field(default=40, ge=0, description="Items that are judged again at every look, at most.")

    @model_validator(mode="after")
    def _of_its_kind(self) -> JudgeSection:
        if (self.kind == "endpoint") != (self.endpoint is not None):
            raise ValueError("a judge of kind `endpoint` states its endpoint, and no other one does")
        return self
