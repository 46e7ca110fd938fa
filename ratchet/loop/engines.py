"""Where a run's policies are sampled from: in this process, or on a vLLM server that is up while it is needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.contracts.policy import Policy
from ratchet.errors import EngineError
from ratchet.loop.context import Run
from ratchet.policies.checkpoint import load, load_tokenizer, verified
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.engine import PolicyEngine
from ratchet.rollouts.vllm_engine import VllmEngine
from ratchet.rollouts.vllm_export import adapter_settings, base_of, export_checkpoint
from ratchet.rollouts.vllm_server import Remote, Server, Settings, VllmServer
from ratchet.store import folder_digest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Sampled = tuple["PreTrainedModel | PolicyEngine", Rendering]
"""What `run_batch` samples from, and how it is spoken to."""
AT_ONCE = 3
"""Adapters that a server computes together: production, canary and the version before."""


@contextmanager
def sampled(run: Run, policies: Sequence[Policy]) -> Iterator[list[Sampled]]:
    """Open policies for sampling with the manifest's engine, in their order, adapters merged.

    Raises:
        IntegrityError: a checkpoint is not the one that was trained.
        EngineError: the engine is away, or cannot serve a policy.
    """
    folders = [verified(run.store, policy.checkpoint, policy.weights_digest) for policy in policies]
    if run.manifest.evaluation.engine.name == "transformers":
        opened = [(policy.harness, *load(folder)) for policy, folder in zip(policies, folders, strict=True)]
        yield [(model, Rendering(tokenizer, harness)) for harness, model, tokenizer in opened]
        return
    with vllm(run, folders[0]) as engine:
        yield [
            (engine.policy(policy.weights_digest, folder), Rendering(load_tokenizer(folder), policy.harness))
            for policy, folder in zip(policies, folders, strict=True)
        ]


@contextmanager
def vllm(run: Run, folder: Path, *, adapters: bool = False) -> Iterator[VllmEngine]:
    """The vLLM server that the manifest names, started where it names none, and a client of it.

    Args:
        run: the experiment.
        folder: a verified checkpoint of the architecture to serve; with an adapter the server starts on its base.
        adapters: whether LoRA adapters are to be served by themselves, which makes full weights slower.

    Raises:
        EngineError: it does not start, or is away.
    """
    place = run.home / "work"
    place.mkdir(parents=True, exist_ok=True)
    settings = adapter_settings(folder) if adapters else None
    first = folder if settings is None else base_of(settings)
    with ExitStack() as stack:
        # Copies of weights go with the engine: what is erased from the store stands nowhere else.
        exports = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="served-", dir=place)))
        rank = int(settings["r"]) if settings else 0
        engine = VllmEngine(_server(run, first, exports, rank, stack), exports)
        stack.callback(engine.close)
        yield engine


def _server(run: Run, first: Path, exports: Path, rank: int, stack: ExitStack) -> Server:
    section = run.manifest.evaluation.engine
    if section.url is None:
        settings = Settings(
            venv=Path(section.venv),
            checkpoint=export_checkpoint(first, exports / folder_digest(first)),
            log=run.home / "logs" / "vllm.log",
            adapters=AT_ONCE if rank else 0,
            rank=rank,
        )
        return stack.enter_context(VllmServer(settings))
    token = os.environ.get(section.token_env) if section.token_env else None
    if section.token_env and not token:
        raise EngineError(
            f"the environment variable {section.token_env}",
            rule="it must hold the token of the vLLM server",
            remedy="set it, or leave `evaluation.engine.token_env` out",
        )
    remote = Remote(section.url, token)
    remote.revive()
    return remote
