"""Empty what Dagster and MLflow hold of an erased grant: `python -m pipelines.purge list|apply`, scope on its input.

`ratchet rights erase` starts it, because `ratchet` itself imports neither of the two.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.instance import ROOT, end_dead_runs, open_instance
from ratchet.errors import RatchetError
from ratchet.loop.places import Scope
from resources.instance_purge import project_purges
from resources.purging import TrackingPurge

if TYPE_CHECKING:
    from ratchet.loop.erasing import Purge


def main(arguments: list[str] | None = None) -> int:
    """List what would be removed, a JSON object a line, or remove it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.purge", description=main.__doc__)
    parser.add_argument("command", choices=["list", "apply"])
    given = parser.parse_args(arguments)
    raw = json.load(sys.stdin)
    scope = Scope(**{**raw, "home": Path(raw["home"]), "experiments": tuple(raw["experiments"])})
    os.chdir(ROOT)
    try:
        for hook in _hooks():
            if given.command == "apply":
                hook.purge(scope)
            else:
                for item in hook.listed(scope):
                    print(json.dumps(item._asdict()))
    except RatchetError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _hooks() -> list[Purge]:
    """The hooks of both tools; of Dagster only where it has an instance. Runs of dead launches are ended first."""
    if not os.environ.get("DAGSTER_HOME") and not (ROOT / ".dagster").exists():
        return [TrackingPurge()]
    instance = open_instance()
    end_dead_runs(instance)
    return project_purges(instance)


if __name__ == "__main__":
    sys.exit(main())
