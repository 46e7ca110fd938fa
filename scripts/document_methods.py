"""Writes the table of methods in docs/methods.md from a finished run of experiments/repair-methods.yaml.

    python scripts/document_methods.py HOME [RUN ...]  # takes the figures of a run over into docs/methods-repair.json
    python scripts/document_methods.py                 # sets the table again from that file

Nothing in the table is typed by hand: each cell is a figure of the run's report, or of what its training recorded. Of
several runs with the same splits and the same baseline, a later one replaces the candidates that it has.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, FIGURES = DOCS / "methods.md", DOCS / "methods-repair.json"
BEGIN, END = "<!-- table of methods: begin -->\n", "<!-- table of methods: end -->\n"
HEADS = (
    "policy", "made by, from", "held-out acceptance", "over the baseline, paired", "beyond its interval",
    "USD per million accepted runs", "training, USD", "training, s", "with what it started from",
)  # fmt: skip


def figures(home: Path, names: list[str]) -> dict[str, Any]:
    """The figures of finished runs, as plain JSON: of every policy, and what the runs were.

    Raises:
        SystemExit: runs differ in their splits or baselines.
    """
    from ratchet.loop.context import runs

    names = names or [name for name in runs(home) if name.startswith("repair-methods-")][-1:]
    first, *others = [_figures(home, name) for name in names]
    for other in others:
        if (
            other["splits"] != first["splits"]
            or other["policies"][0]["acceptance"] != first["policies"][0]["acceptance"]
        ):
            raise SystemExit(f"{other['run']} and {first['run']} have not the same splits and the same baseline")
        for part in ("methods", "policies"):
            newer = {one["name"]: one for one in other[part] if one["name"] != "baseline"}
            first[part] = [newer.get(one["name"], one) for one in first[part]]
    return first


def _figures(home: Path, name: str) -> dict[str, Any]:
    from ratchet.contracts.canonical import digest
    from ratchet.loop.context import reopen_run
    from ratchet.loop.deciding import report_of
    from ratchet.loop.wall_time import training_times

    with reopen_run(home, name) as run:
        report, manifest = report_of(run), run.manifest
        times = {one.candidate: one for one in training_times(run)}
        splits = digest([run.lock.train, run.lock.validation, run.lock.heldout])
    lock = report["split_lock"]
    return {
        "run": name,
        "splits": splits,
        "tasks": {split: lock[split] for split in ("train", "validation", "heldout")},
        "seeds": len(manifest.evaluation.seeds),
        "methods": [
            {"name": one.name, "method": one.method, "start": one.start, "settings": dict(one.settings)}
            for one in manifest.methods
        ],
        "policies": [
            {
                "name": one["name"],
                "run": name,
                "acceptance": one["mean_of_seeds"],
                "difference": one["paired_difference"],
                "per_accepted": one["cost"]["variable_per_accepted"],
                "training": one["cost"]["training_cumulative"],
                "seconds": times[one["name"]].seconds if one["name"] in times else None,
                "whole": times[one["name"]].whole if one["name"] in times else None,
            }
            for one in report["policies"]
        ],
        "decision": {key: report["decision"][key] for key in ("candidate", "state", "reasons")},
    }


def table(found: dict[str, Any]) -> str:
    """The table as markdown, with a line above it that says what run it is."""
    from ratchet.evaluation import format as show

    sections = {one["name"]: one for one in found["methods"]}
    tasks = found["tasks"]
    apart = [f"{one['name']} is from `{one['run']}`" for one in found["policies"] if one["run"] != found["run"]]
    also = f" With the same splits and the same baseline, {', '.join(apart)}." if apart else ""
    said = (
        f"Run `{found['run']}`: {tasks['train']} training, {tasks['validation']} validation, {tasks['heldout']} "
        f"held-out tasks x {found['seeds']} seeds. Intervals are 95 %, clustered by "
        f"problem.{also}\n\n"
    )
    lines = [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    for one in found["policies"]:
        section = sections.get(one["name"])
        difference, per = one["difference"], one["per_accepted"]
        beyond = ""
        if section:
            beyond = "yes" if difference["low"] > 0 else "below it" if difference["high"] < 0 else "no"
        cells = (
            one["name"],
            f"{section['method']}, {section['start']}" if section else "",
            show.percent_interval(one["acceptance"]),
            show.points_interval(difference) if section else "",
            beyond,
            f"{1e6 * per:.0f}" if isinstance(per, float) else show.money(per),
            show.money(one["training"]) if section else "",
            f"{one['seconds']:.0f}" if section else "",
            f"{one['whole']:.0f}" if section else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    decision = found["decision"]
    why = f": {'; '.join(decision['reasons'])}" if decision["reasons"] else ""
    verdict = f"\nValidation chose {decision['candidate']}; the gate says {decision['state']}{why}.\n"
    return said + "\n".join(lines) + "\n" + verdict


def page(text: str, found: dict[str, Any]) -> str:
    """The page with the table set anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(found)}{END}{after}"


def main(arguments: list[str]) -> None:
    """Take a run over where a home is named, and write the page."""
    if arguments:
        taken = figures(Path(arguments[0]).resolve(), arguments[1:])
        FIGURES.write_text(json.dumps(taken, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
