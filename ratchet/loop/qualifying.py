"""Serving qualification in the loop: export, load as a server does, play validation tasks, compare with the trainer.

The serving engine is the manifest's: the version is loaded in this process, or on the vLLM server (a LoRA adapter by
itself, under its own name), and what is played is sampled there.

It follows the decision, for every version that may come to serve, so that no approval has to wait for it. What is
compared is in `release.qualification`; the record goes into the release ledger, and no serving state is open without.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ratchet.contracts.policy import Policy
from ratchet.errors import TooManyInvalid
from ratchet.loop.context import Run
from ratchet.loop.engines import vllm
from ratchet.loop.learning import open_policy
from ratchet.loop.playing import THREADS
from ratchet.loop.trainer import completion
from ratchet.policies.checkpoint import load, verified
from ratchet.policies.rendering import Rendering
from ratchet.progress import task as progress
from ratchet.release.ledger import Ledger
from ratchet.release.qualification import Probe, Qualification, qualify
from ratchet.release.records import Version
from ratchet.rollouts.engine import PolicyEngine
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.rollout import Rollout
from ratchet.rollouts.vllm_export import is_export
from ratchet.serving.served import forward_logprobs
from ratchet.store import folder_digest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROBES = 8
"""Validation tasks that are played."""


def qualify_version(run: Run, version: Version, *, by: str) -> Qualification:
    """Measure one version in the serving engine, and keep the record in ledger and store.

    Args:
        run: the experiment that the version was registered under.
        version: the version; it need not be promoted yet.
        by: person or rule.

    Raises:
        IntegrityError: its checkpoint in the store is not the one that was judged.
        TooManyInvalid: no validation task could be played; nothing is recorded.
    """
    ledger = Ledger.of(run.home)
    serving = ledger.current(version.tenant, version.experiment).production
    before = serving.policy if serving and serving.id != version.id else open_policy(run, "baseline")
    accepted = verified(run.store, version.policy.checkpoint, version.policy.weights_digest)
    with progress(f"serving qualification of {version.policy.name}"), tempfile.TemporaryDirectory() as scratch:
        exported = Path(scratch) / "checkpoint"
        shutil.copytree(accepted, exported, ignore=shutil.ignore_patterns(".*"))
        trained, tokenizer = load(accepted)
        previous, _ = load(verified(run.store, before.checkpoint, before.weights_digest))
        with _loaded(run, version.policy, exported) as (model, read):
            played = _played(run, version.policy, model, Rendering(tokenizer, version.policy.harness))
            # What the engine was told to load is looked at after it answered.
            served_digest = folder_digest(exported if is_export(read, exported) else read)
        record = qualify(
            version,
            served_digest=served_digest,
            engine=run.manifest.evaluation.engine.name,
            probes=list(_probes(played, trained, previous)),
            previous_weights=before.weights_digest,
            by=by,
            at=run.now(),
        )
    run.store.create_same(run.name("qualifications", f"{record.digest}.json"), record.to_bytes())
    ledger.qualify(record)
    return record


class _Loaded(NamedTuple):
    """A checkpoint in the serving engine."""

    model: PreTrainedModel | PolicyEngine
    read: Path
    """Folder that the engine read."""


@contextmanager
def _loaded(run: Run, policy: Policy, folder: Path) -> Iterator[_Loaded]:
    """Load the exported checkpoint as the manifest's engine serves it."""
    if run.manifest.evaluation.engine.name == "transformers":
        yield _Loaded(load(folder)[0], folder)
        return
    with vllm(run, folder, adapters=True) as engine:
        served = engine.served(policy.weights_digest, folder)
        yield _Loaded(served, served.version.path)


def _played(run: Run, policy: Policy, model: PreTrainedModel | PolicyEngine, rendering: Rendering) -> list[Rollout]:
    """Episodes of the loaded version on validation tasks, as live tasks are played, at temperature 1."""
    decoding = policy.harness.decoding.model_copy(update={"temperature": 1.0, "top_p": 1.0})
    requests = [(task, 0) for task in run.validation_tasks()[:PROBES]]
    with ThreadPoolExecutor(THREADS) as pool:
        found = run_batch(
            model, rendering, run.environment, policy.harness, requests,
            salt="qualification", decoding=decoding, pool=pool,
        )  # fmt: skip
    usable = [one for one in found if one.invalid is None and one.exchanges]
    if not usable:
        raise TooManyInvalid(
            f"serving qualification of {policy.name!r}",
            seen=f"{len(found)} of {len(found)} invalid",
            rule=f"at least one validation task must be played; {found[0].invalid or 'no turn was sampled'}",
            remedy="repair the infrastructure and run again",
        )
    return usable


def _probes(played: list[Rollout], trained: PreTrainedModel, previous: PreTrainedModel) -> Iterator[Probe]:
    for rollout in played:
        ids, mask, logprobs = completion(rollout)
        sampled = [bool(own) for own in mask]
        yield Probe(
            prompt_ids=tuple(rollout.prompt_ids),
            completion_ids=tuple(ids),
            sampled=tuple(sampled),
            served=tuple(value for value, own in zip(logprobs, sampled, strict=True) if own),
            trained=tuple(forward_logprobs(trained, rollout.prompt_ids, ids, sampled)),
            previous=tuple(forward_logprobs(previous, rollout.prompt_ids, ids, sampled)),
        )
