#!/usr/bin/env bash
# Writes requirements.lock: one version for everything that the project and its tests need, for Python 3.11.
#
#   scripts/lock.sh             keep the versions locked now, add what pyproject.toml asks for besides
#   scripts/lock.sh --upgrade   resolve everything anew
#
# Pins carry no local label ("+cpu") and no CUDA package, so that the same lock installs torch's build for a CPU and for
# a GPU: whichever the machine's index offers brings what it needs itself.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3.11}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

constraints=()
if [[ "${1:-}" != --upgrade && -f requirements.lock ]]; then
    constraints=(--constraint requirements.lock)
fi
echo "resolving; the wheels are downloaded, nothing is installed" >&2
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --upgrade 'pip>=25'
"$work/venv/bin/python" -m pip install --quiet --dry-run --ignore-installed --report "$work/report.json" \
    "${constraints[@]}" '.[dev]' 'setuptools>=77'
"$work/venv/bin/python" - "$work/report.json" > "$work/lock" <<'PYTHON'
import json
import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    found = {item["metadata"]["name"]: item["metadata"]["version"] for item in json.load(file)["install"]}
print("# Every version that the project and its tests need, for Python 3.11. Written by scripts/lock.sh.")
for name in sorted(found, key=str.lower):
    if not re.match(r"ratchet$|nvidia-|cuda-|triton$", name, re.IGNORECASE):
        print(f"{name}=={found[name].split('+')[0]}")
PYTHON
mv "$work/lock" requirements.lock
chmod 644 requirements.lock
echo "requirements.lock: $(grep -c == requirements.lock) versions" >&2
