"""A version as it is loaded: weights, tokenizer and identity in one object, so that no answer can carry another's name.

The engine is `transformers`, in this process (`rollouts.engine`). Requests to one version may run at once: sampling
changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ratchet.contracts.environment import Environment, Message, Task
from ratchet.contracts.policy import Decoding, Policy
from ratchet.errors import IntegrityError
from ratchet.policies.checkpoint import load
from ratchet.policies.rendering import Rendering
from ratchet.release.live import BASELINE
from ratchet.release.qualification import Qualification, largest_difference
from ratchet.release.records import Version
from ratchet.rollouts.engine import Session, Turn
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.rollout import Rollout

TRIED = 4
"""Probes of the qualification that are tried again at each load."""


class Answer(NamedTuple):
    """What one request came to."""

    prompt_ids: list[int]
    turns: list[Turn]
    texts: list[str]


class Served:
    """One loaded version, or the baseline."""

    def __init__(self, identity: str, policy: Policy, folder: Path) -> None:
        """Load the checkpoint in `folder`, which the caller has verified.

        Args:
            identity: id of the version, or `baseline`.
            policy: its policy.
            folder: the checkpoint.
        """
        self.identity, self.policy, self.folder = identity, policy, folder
        self.model, tokenizer = load(folder)
        self.rendering = Rendering(tokenizer, policy.harness)

    @classmethod
    def of(cls, version: Version, folder: Path, record: Qualification | None) -> Served:
        """Load a released version and try it on probes of its qualification: it must say what it said then.

        Raises:
            IntegrityError: a log-probability is further off than the qualification's tolerance.
        """
        made = cls(version.id, version.policy, folder)
        if record is not None:
            made.refuse_other(record)
        return made

    @property
    def label(self) -> str:
        """Name and start of the identity, for people."""
        return f"{self.policy.name} ({self.identity[:12]})"

    @property
    def is_version(self) -> bool:
        """Whether it is a version, not the baseline."""
        return self.identity != BASELINE

    def answer(self, messages: Sequence[Message], decoding: Decoding, *, n: int, seed: str) -> Answer:
        """Sample `n` answers to a conversation; what row i draws depends on `seed`, i and its own tokens alone."""
        prompt = self.rendering.prompt(list(messages))
        session = Session(self.model, self.rendering.end, decoding, [f"{seed}/{row}" for row in range(n)])
        turns = session.turn(dict.fromkeys(range(n), prompt))
        found = [turns[row] for row in range(n)]
        spoken = [turn.ids[:-1] if turn.finish_reason == "stop" else turn.ids for turn in found]
        return Answer(prompt, found, [str(self.rendering.tokenizer.decode(ids)) for ids in spoken])

    def play(self, environment: Environment, task: Task, seed: int, pool: ThreadPoolExecutor) -> Rollout:
        """Run one episode of a task to its end."""
        (found,) = run_batch(
            self.model, self.rendering, environment, self.policy.harness, [(task, seed)], salt=self.identity, pool=pool
        )
        return found

    def refuse_other(self, record: Qualification) -> None:
        """Raise IntegrityError where this does not answer as the qualified version did."""
        for probe in record.probes[:TRIED]:
            said = forward_logprobs(self.model, probe.prompt_ids, probe.completion_ids, probe.sampled)
            off = largest_difference(said, probe.served)
            if off > record.tolerance:
                raise IntegrityError(
                    f"loaded {self.label}",
                    seen=f"a log-probability is {off:.2g} nats from the qualified one",
                    rule=f"it may be {record.tolerance:g}",
                    remedy="qualify the version on this machine's engine, or serve the previous one",
                )


def forward_logprobs(
    model: object, prompt_ids: Sequence[int], completion_ids: Sequence[int], sampled: Sequence[bool]
) -> list[float]:
    """Log-probabilities of the sampled tokens by one plain forward pass at temperature 1, as a trainer computes them.

    Args:
        model: a causal language model.
        prompt_ids: ids of the prompt.
        completion_ids: ids after it.
        sampled: which of these to report, aligned with `completion_ids`.
    """
    import torch

    ids = torch.tensor([[*prompt_ids, *completion_ids]], device=model.device)  # type: ignore[attr-defined]
    with torch.inference_mode():
        scores = model(input_ids=ids).logits[0, len(prompt_ids) - 1 : -1]  # type: ignore[operator]
    logprobs = torch.log_softmax(scores.float(), -1).gather(1, ids[0, len(prompt_ids) :, None])[:, 0]
    return [value for value, own in zip(logprobs.tolist(), sampled, strict=True) if own]
