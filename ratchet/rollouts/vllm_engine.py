"""The vLLM engine: token ids go out over HTTP, sampled ids and their log-probabilities come back.

A conversation is a list of ids that only ever grows by what was sampled and what was added, so nothing is tokenised
twice; the server's prefix cache spares it the old part. What a row draws depends on its seed, the number of its turn
and its own ids, so a request that was lost can be asked again, and draws the same.

One server holds one version's full weights at a time, and any number of adapters by name. No answer is taken on trust:

- An adapter is loaded under the version's own name, on its own base, and every answer bears the name that it was
  asked for. Adapters of one base answer side by side.
- Full weights are put in place while generation is paused and the caches are dropped, under a name drawn for it. Turns
  of one version share them; who needs others waits until these have ended. The server is asked for the name after
  every turn (one question serves all turns that ended before it); a server that was restarted has lost the name, so
  the turn is asked again after the weights are back.
- After every load the version answers probes, greedily, with the ids and log-probabilities that its checkpoint gives in
  this process.

A server that is away is brought back (`Server.revive`), and the turn is asked again, a bounded number of times. Then
`EngineError` stops the stage; rows that are finished are kept, and no row is invalid because an engine was away.
"""

from __future__ import annotations

import hashlib
import json
import random
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ratchet.contracts.policy import Decoding
from ratchet.errors import EngineError
from ratchet.policies.checkpoint import load
from ratchet.progress import say
from ratchet.rollouts.engine import Session, Turn
from ratchet.rollouts.sharing import Sharing
from ratchet.rollouts.vllm_client import Ask, Away, Client
from ratchet.rollouts.vllm_export import adapter_settings, base_of, export_adapter, export_checkpoint
from ratchet.rollouts.vllm_server import MODEL, Server
from ratchet.store import folder_digest

PROBES = 4
PROBE_IDS = 12
PROBE_TURN = Decoding(temperature=0, max_tokens_per_turn=4)
TOLERANCE = 1e-4
"""Nats that a probe's log-probability may differ between the server and this process, both in float32."""
REVIVALS = 5
"""Times in a row that a turn may find the server away, or with other weights, before the stage stops."""


class Probe(NamedTuple):
    """A prompt, and what the version's checkpoint answers to it greedily."""

    prompt: list[int]
    meant: Turn


class Version(NamedTuple):
    """A version of a policy as the server serves it."""

    name: str
    """Digest of its weights."""
    path: Path
    """Exported checkpoint or adapter, which the server reads."""
    base: Version | None
    """Full weights that it is an adapter of; None: it is full weights itself."""
    end: int
    """Id of its end-of-turn token."""
    probes: tuple[Probe, ...]


class VllmEngine:
    """A client of one server, for all versions of a policy."""

    def __init__(self, server: Server, exports: Path, *, concurrency: int = 64) -> None:
        """Use a server that runs.

        Args:
            server: the server.
            exports: folder for checkpoints in the form that it serves; it reads them there.
            concurrency: requests at once.
        """
        self.server, self.exports = server, exports
        self.discarded = 0
        """Answers that were thrown away, because other weights were put in place beside them."""
        self._client = Client(server, concurrency)
        self._bases: dict[Path, Version] = {}
        self._weights = Sharing()
        self._alone = threading.Lock()
        self._asking = threading.Lock()
        self._life = 0
        self._placed: tuple[str, str] | None = None
        self._held: tuple[str, float] | None = None
        """Name that the server last said its weights bear, and when it was asked."""
        self._adapters: set[str] = set()

    def close(self) -> None:
        """End the threads; the server goes on."""
        self._client.close()

    def policy(self, name: str, folder: Path) -> VllmPolicy:
        """Export a checkpoint, adapters merged, and compute what it answers to the probes.

        Args:
            name: digest of the weights in `folder`, which the caller has verified.
            folder: the checkpoint.

        Raises:
            EngineError: vLLM cannot serve it.
        """
        return VllmPolicy(self, self._full(name, folder))

    def adapter(self, name: str, folder: Path) -> VllmPolicy:
        """Export a LoRA adapter, to be served beside others of the same base without being merged.

        Args:
            name: digest of the files in `folder`, which the caller has verified.
            folder: the adapter; its settings name the folder of its base.

        Raises:
            EngineError: vLLM cannot serve it by itself.
        """
        path = export_adapter(folder, self.exports / name)
        below = base_of(json.loads((folder / "adapter_config.json").read_bytes()))
        if below not in self._bases:
            self._bases[below] = self._full(folder_digest(below), below)
        return VllmPolicy(self, _probed(name, folder, path, self._bases[below]))

    def served(self, name: str, folder: Path) -> VllmPolicy:
        """A version as it is served: an adapter by itself where vLLM can, everything else as full weights."""
        return self.policy(name, folder) if adapter_settings(folder) is None else self.adapter(name, folder)

    def _full(self, name: str, folder: Path) -> Version:
        return _probed(name, folder, export_checkpoint(folder, self.exports / name), None)

    def answer(self, version: Version, asks: Sequence[Ask]) -> list[Turn]:
        """Sample one turn for each row under one version.

        Raises:
            EngineError: the server stays away, does not prove the version, or refuses a request.
        """
        last, full = "", version.base or version
        for _ in range(REVIVALS + 1):
            life = self._life
            try:
                with self._weights.inside(full.name) as since:
                    with self._alone:
                        placed = self._stand_weights(full, since)
                        if version.base is not None:
                            self._stand_adapter(version)
                    turns = self._client.turns(_model(version), asks)
                    if self._stands(placed, time.monotonic()):
                        return turns
                with self._alone:
                    self.discarded += len(turns)
                last = "other weights were put in place during the turn"
            except Away as error:
                last = str(error)
                say(f"  the vLLM server is away ({last}); the turn is asked again once it is back")
                self._revive(life)
        raise EngineError(
            f"the vLLM server at {self.server.url}",
            seen=last,
            rule=f"a turn is asked {REVIVALS + 1} times",
            remedy="look at its log, and run again; finished work is kept",
        )

    def _revive(self, life: int) -> None:
        """Bring the server back, once for all threads that found it away in the same life."""
        with self._alone:
            if self._life == life:
                self.server.revive()
                self._placed = None
                self._adapters.clear()
                self._life += 1

    def _stands(self, placed: str, since: float) -> bool:
        """Whether the server's weights bear a name, by its own word at some time after `since`."""
        with self._asking:
            if self._held is None or self._held[0] != placed or self._held[1] < since:
                asked = time.monotonic()
                self._held = str(self._client.weights()), asked
            return self._held[0] == placed

    def _stand_weights(self, version: Version, since: float) -> str:
        """Put full weights in place, unless they are, and prove them; returns the name that they bear there."""
        if self._placed and self._placed[0] == version.name and self._stands(self._placed[1], since):
            return self._placed[1]
        # Drawn anew each time: weights that another client took away and put back would bear another name.
        placed, self._placed = f"{version.name}:{secrets.token_hex(4)}", None
        self._client.call("POST", "/pause?mode=wait", {})
        try:
            rpc = {"method": "reload_weights", "kwargs": {"weights_path": str(version.path)}}
            self._client.call("POST", "/collective_rpc", rpc)
            self._client.call("POST", "/reset_prefix_cache", {})
            self._client.call("POST", "/update_weight_version", {"new_version": placed})
        finally:
            self._client.call("POST", "/resume", {})
        self._adapters.clear()
        self._prove(version)
        self._placed = version.name, placed
        return placed

    def _stand_adapter(self, version: Version) -> None:
        """Load an adapter under the version's name, unless it is, and prove it on the base that stands below it."""
        if version.name not in self._adapters:
            # A name that is there already is not loaded again: vLLM would refuse it, and a reload keeps old caches.
            if version.name not in {one["id"] for one in self._client.models()}:
                body = {"lora_name": version.name, "lora_path": str(version.path)}
                self._client.call("POST", "/v1/load_lora_adapter", body)
            self._prove(version)
            self._adapters.add(version.name)

    def _prove(self, version: Version) -> None:
        asks = [Ask(probe.prompt, 0, version.end, PROBE_TURN) for probe in version.probes]
        said = self._client.turns(_model(version), asks)
        off = max(_difference(turn, probe.meant) for turn, probe in zip(said, version.probes, strict=True))
        if off > TOLERANCE:
            raise EngineError(
                f"version {version.name[:12]} on the vLLM server",
                seen=f"a probe is {off:.2g} nats from what its checkpoint answers",
                rule=f"it may be {TOLERANCE:g}",
                remedy="serve it in float32, or use `engine: transformers`",
            )


class VllmPolicy:
    """One version on one server: what an episode loop samples from."""

    def __init__(self, engine: VllmEngine, version: Version) -> None:
        """Name the version; nothing is sent before the first turn."""
        self.engine, self.version = engine, version

    def session(self, end: int, decoding: Decoding, seeds: list[str]) -> VllmSession:
        """Open a batch of conversations."""
        return VllmSession(self, end, decoding, seeds)


class VllmSession:
    """A batch of conversations that grow turn by turn under one version; see `ratchet.rollouts.engine.Session`."""

    def __init__(self, policy: VllmPolicy, end: int, decoding: Decoding, seeds: list[str]) -> None:
        """Open the conversations, one for each seed, all empty."""
        self.policy, self.end, self.decoding = policy, end, decoding
        self.seeds = dict(enumerate(seeds))
        self.ids: dict[int, list[int]] = {row: [] for row in self.seeds}
        self.turns = 0

    def turn(self, added: dict[int, list[int]]) -> dict[int, Turn]:
        """Append tokens to rows and sample one turn of each. Rows that are not named are dropped for good."""
        self.ids = {row: self.ids[row] + more for row, more in added.items() if row in self.ids}
        asks = [
            Ask(ids, _seed(f"{self.seeds[row]}/{self.turns}"), self.end, self.decoding) for row, ids in self.ids.items()
        ]
        said = self.policy.engine.answer(self.policy.version, asks) if asks else []
        self.turns += 1
        turns = dict(zip(self.ids, said, strict=True))
        self.ids = {row: ids + turns[row].ids for row, ids in self.ids.items()}
        return turns

    def take_back(self, row: int, ids: list[int]) -> None:
        """Forget the last turn of a row, which sampled `ids`, and the token before it."""
        self.ids[row] = self.ids[row][: -1 - len(ids)]


def _probed(name: str, folder: Path, path: Path, base: Version | None) -> Version:
    """The version of the checkpoint in `folder`, exported to `path`, with what it answers to the probes."""
    model, tokenizer = load(folder, dtype="float32")
    rng = random.Random(0)
    prompts = [[rng.randrange(model.config.vocab_size) for _ in range(PROBE_IDS)] for _ in range(PROBES)]
    meant = Session(model, tokenizer.eos_token_id, PROBE_TURN, ["probe"] * PROBES).turn(dict(enumerate(prompts)))
    probes = tuple(Probe(prompt, meant[row]) for row, prompt in enumerate(prompts))
    return Version(name, path.absolute(), base, tokenizer.eos_token_id, probes)


def _model(version: Version) -> str:
    """What the server calls a version: an adapter has a name of its own, base weights have one for all."""
    return MODEL if version.base is None else version.name


def _difference(said: Turn, meant: Turn) -> float:
    """Largest difference of log-probabilities, up to where two tokens tie and the turns part."""
    off = 0.0
    for one, other, mine, theirs in zip(said.ids, meant.ids, said.logprobs, meant.logprobs, strict=False):
        off = max(off, abs(mine - theirs))
        if one != other:
            break
    return off


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
