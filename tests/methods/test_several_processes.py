"""Two processes of `accelerate launch` (gloo, CPU) really train together, and come to what one process comes to.

What trains on several GPUs or nodes is the same code with another configuration file, and was not run here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import ManifestError
from ratchet.methods.trainer import run_in_subprocess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# The launcher starts processes without MPI for this type alone; that they are on the CPU is what RATCHET_DEVICE says.
TWO = """
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_machines: 1
num_processes: 2
machine_rank: 0
main_process_port: 0
mixed_precision: 'no'
use_cpu: false
"""
PASSES = {"epochs": 2, "batch_size": 4, "lr": 1e-2}


@pytest.fixture
def together(tmp_path: Path) -> Path:
    file = tmp_path / "two.yaml"
    file.write_text(TWO, encoding="utf-8")
    return file


def trained(folder: Path, accelerate: Path | None, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = run_in_subprocess(
        "worker_training:several",
        {"settings": PASSES, "output": str(folder / "run"), **arguments},
        folder / "process",
        hard_wall_s=600,
        accelerate=accelerate,
    )
    return found


@pytest.mark.parametrize(
    "case", [{"method": "sft"}, {"method": "sft", "adapter": {"r": 4}}, {"method": "dpo"}], ids=str
)
def test_two_processes_end_in_the_weights_of_one(
    case: dict[str, Any], together: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    one, two = trained(tmp_path / "one", None, **case), trained(tmp_path / "two", together, **case)
    assert (one["processes"], two["processes"]) == (1, 2)
    assert len(one["losses"]) == 6
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-4)
    assert (two["validated"], two["step"]) == (one["validated"], one["step"])
    assert two["weights"].keys() == one["weights"].keys()
    for name, values in one["weights"].items():
        assert two["weights"][name] == pytest.approx(values, abs=1e-5), name
    assert one["losses"][-1] < one["losses"][0]


def test_rows_that_two_processes_cannot_share_and_methods_that_act_are_refused_by_name(
    together: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with pytest.raises(ManifestError, match="must divide the 3 rows of a step over 2 processes"):
        trained(tmp_path / "odd", together, method="sft", settings={**PASSES, "batch_size": 3})
    acts = {"steps": 1, "prompts_per_step": 2, "group_size": 2}
    with pytest.raises(ManifestError, match=r"methods.grpo is '2 processes': .* trains in one process"):
        trained(tmp_path / "acts", together, method="grpo", settings=acts)
