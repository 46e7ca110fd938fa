"""From the signal to the old version serving: a rollback in the ledger until a client gets the first old answer.

    python benchmarks/rollback.py [ROUNDS]

The service runs as `ratchet serve` does, with its default poll of the ledger, and is asked over HTTP all the time. The
signal is the moment at which the ledger's transaction is done. The store is taken away first: nothing of it is needed.
The peer is what a server would have to do that keeps no previous version: fetch the same version from the store, verify
it, load it and answer once. Both answer the same question with the starter policy (0.4 million parameters).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import requests
import torch
import uvicorn

from ratchet.contracts.environment import Message
from ratchet.contracts.manifest import Manifest
from ratchet.contracts.manifest_file import load_manifest
from ratchet.contracts.policy import Harness, Policy
from ratchet.policies.checkpoint import STARTER, load, save
from ratchet.release.certificate import certify, write_certificate
from ratchet.release.decision import Decision
from ratchet.release.ledger import Ledger
from ratchet.release.qualification import Probe, qualify
from ratchet.release.records import Version
from ratchet.serving.depot import Depot
from ratchet.serving.desk import Desk
from ratchet.serving.outcomes import Spool
from ratchet.serving.served import ENGINE, Served, forward_logprobs
from ratchet.serving.server import Service
from ratchet.store import LocalStore

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "rollback.json"
NOW = datetime.now(UTC)
QUESTION = [Message(role="user", content="mend it")]


def policy(store: LocalStore, name: str, seed: int, harness: Harness) -> Policy:
    """The starter with weights of its own."""
    model, tokenizer = load(STARTER)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.01 * torch.randn_like(weights))
    with tempfile.TemporaryDirectory() as folder:
        save(model, tokenizer, Path(folder))
        weights = store.publish_folder(Path(folder), f"checkpoints/{name}")
    return Policy(name=name, method="sft", checkpoint=f"checkpoints/{name}", weights_digest=weights, harness=harness)


def produce(ledger: Ledger, store: LocalStore, manifest: Manifest, made: Policy, incumbent: Version | None) -> Version:
    """Bring a policy into production, qualified and certified."""
    version = ledger.register(manifest, made, by="bench", at=NOW)
    model = Served(version.id, made, store.folder(made.checkpoint)).model
    said = tuple(forward_logprobs(model, (5, 6, 7), (8, 9), (True, True)))
    probe = Probe(prompt_ids=(5, 6, 7), completion_ids=(8, 9), sampled=(True, True), served=said, trained=said)
    ledger.qualify(
        qualify(
            version, served_digest=made.weights_digest, engine=ENGINE, probes=[probe], previous_weights=None,
            by="bench", at=NOW,
        )
    )  # fmt: skip
    decision = Decision.issue(
        state="promote",
        candidate=made.name,
        candidate_digest=made.digest,
        incumbent=incumbent.policy.name if incumbent else "baseline",
        incumbent_digest=incumbent.policy.digest if incumbent else "0" * 64,
        incumbent_version=incumbent.id if incumbent else None,
        manifest_digest=manifest.digest,
        rules=(),
        reasons=(),
        inputs={},
        decided_at=NOW,
        decided_by="bench",
    )
    ledger.apply(version, decision, at=NOW)
    ledger.approve(version, by="owner", reason="bench", upto="production", at=NOW)
    approvals = ledger.approvals(version, decision)
    write_certificate(store, certify(version, decision, {}, approvals=approvals, by="owner", at=NOW))
    return version


def ask(url: str) -> str:
    """The version that answers one question."""
    body = {"model": "production", "messages": [{"role": "user", "content": QUESTION[0].content}]}
    answer = requests.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    answer.raise_for_status()
    return str(answer.json()["model"])


def one_round(home: Path) -> tuple[float, float]:
    """Seconds of one rollback, and of one cold load of the version that it puts back."""
    overrides = {"release.canary_share": 0.0}
    manifest = load_manifest(ROOT / "experiments" / "repair.yaml", overrides=overrides)
    store, ledger = LocalStore(home / "store"), Ledger.of(home)
    section = manifest.environment
    harness = Harness(tools=section.tools, max_calls=section.limits.max_calls)
    first = produce(ledger, store, manifest, policy(store, "first", 1, harness), None)
    second = produce(ledger, store, manifest, policy(store, "second", 2, harness), first)
    depot = Depot(home, store, ledger, manifest.tenant, manifest.experiment)
    service = Service(
        Desk(ledger, depot, manifest.tenant, manifest.experiment),
        Spool(home, store, manifest.tenant, manifest.experiment),
        None,
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(service.app(), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert ask(url) == second.id
        os.rename(home / "store", home / "away")
        ledger.rollback(manifest.tenant, manifest.experiment, by="owner", reason="bench")
        signal = time.perf_counter()
        while ask(url) != first.id:
            pass
        seconds = time.perf_counter() - signal
        os.rename(home / "away", home / "store")
        server.should_exit = True
        thread.join()
    shutil.rmtree(depot.root)
    depot.root.mkdir()
    start = time.perf_counter()
    served = Served.of(first, depot.folder(first), ledger.qualification(first))
    served.answer(QUESTION, first.policy.harness.decoding, n=1, seed="0")
    return seconds, time.perf_counter() - start


def main(rounds: int) -> None:
    """Measure, print and write the results."""
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            found.append(one_round(Path(folder)))
    took, cold = (sorted(values) for values in zip(*found, strict=True))
    print(f"rollback: median {median(took):.3f} s, slowest {took[-1]:.3f} s of {rounds}; poll every 0.2 s")
    print(f"cold load of the same version: median {median(cold):.3f} s, slowest {cold[-1]:.3f} s")
    peer = "cold load of the same version: fetch, verify, load, first answer"
    rows = [("median", median(took), median(cold)), ("slowest", took[-1], cold[-1])]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps(
            [
                {
                    "name": f"rollback: ledger write to first answer of the previous version, {what} of {rounds}",
                    "figure": round(figure, 3),
                    "unit": "s",
                    "peer": peer,
                    "peer_figure": round(other, 3),
                    "ratio": round(figure / other, 2),
                }
                for what, figure, other in rows
            ],
            indent=2,
        )
        + "\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
