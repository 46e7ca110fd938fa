"""The table of methods in the docs is what its run says, and its run is the experiment as it stands."""

from __future__ import annotations

import copy
import json
import runpy
from pathlib import Path
from typing import Any

from ratchet.contracts.manifest_file import load_manifest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "document_methods.py"))
PAGE = ROOT / "docs" / "methods.md"


def taken() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "methods-repair.json").read_text(encoding="utf-8"))
    return found


def lines(found: dict[str, Any]) -> dict[str, list[str]]:
    rows = [line.strip("|").split("|") for line in SCRIPT["table"](found).splitlines() if line.startswith("| ")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows}


def test_the_table_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert SCRIPT["page"](text, taken()) == text, "run python scripts/document_methods.py"
    assert text.count(SCRIPT["BEGIN"]) == text.count(SCRIPT["END"]) == 1


def test_the_run_is_that_of_the_experiment_as_it_stands() -> None:
    manifest, found = load_manifest(ROOT / "experiments" / "repair-methods.yaml"), taken()
    asked = [
        {"name": one.name, "method": one.method, "start": one.start, "settings": dict(one.settings)}
        for one in manifest.methods
    ]
    assert found["methods"] == json.loads(json.dumps(asked))
    sizes = manifest.splits
    assert found["tasks"] == {"train": sizes.train, "validation": sizes.validation, "heldout": sizes.heldout}
    assert found["seeds"] == len(manifest.evaluation.seeds)
    assert [one["name"] for one in found["policies"]] == ["baseline", *(one["name"] for one in asked)]


def test_a_row_says_whether_a_method_beat_the_baseline_beyond_its_interval() -> None:
    found = copy.deepcopy(taken())
    better, worse, unclear = found["policies"][1:4]
    better["difference"].update(value=0.2, low=0.1, high=0.3)
    worse["difference"].update(value=-0.2, low=-0.3, high=-0.1)
    unclear["difference"].update(value=0.1, low=-0.1, high=0.3)
    unclear["per_accepted"] = {"not_computable": "0 accepted results in the window"}
    rows = lines(found)
    assert rows[better["name"]][2:4] == ["+20.0 points [+10.0, +30.0]", "yes"]
    assert rows[worse["name"]][2:4] == ["-20.0 points [-30.0, -10.0]", "below it"]
    assert rows[unclear["name"]][3:5] == ["no", "0 accepted results in the window"]
    assert rows["baseline"][2:4] == ["", ""]
