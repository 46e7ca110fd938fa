"""Empty what Dagster and MLflow hold of an erased grant: `python -m pipelines.purge list|apply`, scope on its input.

`ratchet rights erase` starts it, because `ratchet` itself imports neither of the two.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from pipelines.instance import ROOT, open_instance
from ratchet.errors import RatchetError
from ratchet.loop.places import Scope
from resources.instance_purge import project_purges
from resources.purging import TrackingPurge


def main(arguments: list[str] | None = None) -> int:
    """List what would be removed, a JSON object a line, or remove it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.purge", description=main.__doc__)
    parser.add_argument("command", choices=["list", "apply"])
    given = parser.parse_args(arguments)
    raw = json.load(sys.stdin)
    scope = Scope(**{**raw, "home": Path(raw["home"]), "experiments": tuple(raw["experiments"])})
    os.chdir(ROOT)
    known = os.environ.get("DAGSTER_HOME") or (ROOT / ".dagster").exists()
    try:
        for hook in project_purges(open_instance()) if known else [TrackingPurge()]:
            if given.command == "apply":
                hook.purge(scope)
            else:
                for item in hook.listed(scope):
                    print(json.dumps(item._asdict()))
    except RatchetError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
