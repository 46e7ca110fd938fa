"""vLLM against transformers: 64 episodes of `repair` at once with the starter checkpoint, in one run.

    python benchmarks/engines.py [--batch 64] [--rounds 5]

Both engines play the same tasks with the same episode loop, in float32 at temperature 1, with one thread of torch each:
transformers in this process, vLLM in a child, with full weights, as it is started for a run. Its start is measured by
itself and is in no ratio. The engines take turns, so that a machine that slows down slows both; the first round of each
is left out. What the tools run is remembered from round to round. Without the environment that `make serve-env` makes
nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from episodes import ROOT, THREADS, harness, world

from ratchet.policies.checkpoint import STARTER, load
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.vllm_engine import VllmEngine
from ratchet.rollouts.vllm_export import export_checkpoint
from ratchet.rollouts.vllm_server import Settings, VllmServer
from ratchet.store import folder_digest

RESULTS = ROOT / "benchmarks" / "results" / "engines.json"
VENV = ROOT / ".venv-serve"


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    if not (VENV / ".made-from").exists():
        print("nothing is measured: the vLLM server's environment is not there (make serve-env)")
        return
    torch.set_num_threads(1)
    model, tokenizer = load(STARTER)
    rendering = Rendering(tokenizer)
    rates: dict[str, list[float]] = {"transformers": [], "vllm": []}
    with tempfile.TemporaryDirectory() as folder, world(calls=24) as (manifest, environment, tasks):
        exports = Path(folder)
        settings = Settings(VENV, export_checkpoint(STARTER, exports / "base"), exports / "vllm.log")
        begun = time.perf_counter()
        with VllmServer(settings) as server, ThreadPoolExecutor(THREADS) as pool:
            ready = time.perf_counter() - begun
            engine = VllmEngine(server, exports)
            engines: dict[str, Any] = {"transformers": model, "vllm": engine.policy(folder_digest(STARTER), STARTER)}
            requests = [(tasks[at % len(tasks)], at // len(tasks)) for at in range(chosen.batch)]
            for number in range(chosen.rounds + 1):
                for name, one in engines.items():
                    began = time.perf_counter()
                    played = run_batch(
                        one, rendering, environment, harness(manifest), requests, salt=str(number), pool=pool
                    )
                    seconds = time.perf_counter() - began
                    if any(rollout.invalid for rollout in played):
                        raise SystemExit(f"{name}: {next(one.invalid for one in played if one.invalid)}")
                    if number:
                        rates[name].append(sum(rollout.tokens_out for rollout in played) / seconds)
            engine.close()
    here, there = median(rates["transformers"]), median(rates["vllm"])
    ratio = median(b / a for a, b in zip(rates["transformers"], rates["vllm"], strict=True))
    print(f"{chosen.batch} episodes at once, median of {chosen.rounds} rounds, {os.cpu_count()} processors")
    print(f"transformers {here:.0f}, vLLM {there:.0f} sampled tokens/s: {ratio:.2f} times")
    print(f"the server answered after {ready:.0f} s")
    row = {
        "name": f"vLLM, {chosen.batch} episodes at once",
        "figure": round(there, 1),
        "unit": "sampled tokens/s",
        "peer": "transformers in the process, the same tasks",
        "peer_figure": round(here, 1),
        "ratio": round(ratio, 3),
    }
    RESULTS.write_text(json.dumps([row], indent=2) + "\n")


if __name__ == "__main__":
    main()
