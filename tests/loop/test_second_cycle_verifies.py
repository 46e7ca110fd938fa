"""A version that started from the one in production: its evidence reaches into the run that made that one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from loop_world import MANIFEST, prepare
from second_world import SFT, finish, promoted, second_manifest

from ratchet.loop import deciding
from ratchet.loop.context import open_run, reopen_run
from ratchet.release.evidence import latest_bundle
from ratchet.release.export import export_version, home_source, verify_export
from ratchet.release.trust import Trust
from ratchet.release.verify import failed, verify

SECOND = second_manifest(methods=[{"name": "further", "start": "incumbent", **SFT}])


@pytest.mark.slow
def test_second_cycle_verifies_here_and_elsewhere(finished: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(finished, tmp_path / "home"))
    with reopen_run(home, MANIFEST.run_id) as run:
        first = deciding.candidate_version(run)
        assert failed(verify(home_source(home, first))) == []
        promoted(run, "grpo" if first.policy.name == "sft" else "sft")
    with open_run(home, SECOND) as run:
        prepare(run)
        finish(run)
        version = deciding.candidate_version(run)
        bundle = latest_bundle(run.store, version.id)
    assert bundle is not None
    found = verify(home_source(home, version))
    assert failed(found) == []
    assert {one.about for one in bundle.of("scorecard")} == {"incumbent", "baseline", "further"}
    assert any(MANIFEST.run_id in one.name for one in bundle.of("dataset"))
    assert "3 from " in next(one.words for one in found if one.item == "scorecards")
    export_version(home, version, tmp_path / "export")
    assert failed(verify_export(tmp_path / "export", Trust())) == []
