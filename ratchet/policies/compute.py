"""Where models are held and trained: settings of a machine, not of an experiment, so that a manifest runs on any.

| variable | values | where it is not set |
|---|---|---|
| `RATCHET_DEVICE` | `cpu`, `cuda` (ROCm too), `xpu` | `cpu` |
| `RATCHET_DTYPE` | `float32`, `bfloat16`, `float16`: of weights that are sampled, or lie under an adapter | `float32` |
| `RATCHET_ACCELERATE` | a configuration file of `accelerate`, with which trainers are launched | one process |

Which card a process uses is `CUDA_VISIBLE_DEVICES` for all libraries alike, and among the processes that `accelerate`
launches each has its own. Figures that depend on the last bits of a log-probability are those of one machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ratchet.errors import ManifestError

if TYPE_CHECKING:
    import torch

DEVICE, DTYPE, ACCELERATE = "RATCHET_DEVICE", "RATCHET_DTYPE", "RATCHET_ACCELERATE"
DEVICES = ("cpu", "cuda", "xpu")
DTYPES = ("float32", "bfloat16", "float16")


class Compute(NamedTuple):
    """What the environment of this process says."""

    device: str = "cpu"
    dtype: str = "float32"
    accelerate: Path | None = None


def compute() -> Compute:
    """Read the variables. Raises ManifestError for a value that is none, or a file that is not there."""
    file = os.environ.get(ACCELERATE)
    found = Compute(
        os.environ.get(DEVICE) or "cpu", os.environ.get(DTYPE) or "float32", Path(file).resolve() if file else None
    )
    for name, seen, known in ((DEVICE, found.device, DEVICES), (DTYPE, found.dtype, DTYPES)):
        if seen not in known:
            raise ManifestError(name, seen=seen, rule=f"it must be one of {list(known)}", remedy="correct the variable")
    if found.accelerate is not None and not found.accelerate.is_file():
        raise ManifestError(
            ACCELERATE,
            seen=str(found.accelerate),
            rule="it must be a configuration file of accelerate",
            remedy="make one with `accelerate config --config_file FILE`, or leave the variable out",
        )
    return found


def device() -> torch.device:
    """The torch device of this process: of several that `accelerate` launched each has its own.

    Raises:
        ManifestError: torch sees no such device here.
    """
    import torch

    kind = compute().device
    if kind == "cpu":
        return torch.device("cpu")
    if not getattr(torch, kind).is_available():
        raise ManifestError(
            DEVICE,
            seen=kind,
            rule=f"torch {torch.__version__} must see such a device on this machine",
            remedy="install a build of torch for it, or leave the variable out to use the CPU",
        )
    return torch.device(kind, int(os.environ.get("LOCAL_RANK", "0")))


def processes() -> int:
    """How many processes train together: 1, but in a trainer that `accelerate` launched."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that validates, saves and reports; where there is one alone, it is."""
    return os.environ.get("RANK", "0") == "0"
