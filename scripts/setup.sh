#!/usr/bin/env bash
# Makes the virtual environment that everything runs in, from requirements.lock. Called by every `make` target.
#
#   scripts/setup.sh [VENV]     default .venv; PYTHON names the interpreter, default python3.11
#
# Does nothing where the environment was made from these very files.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${1:-.venv}"
python="${PYTHON:-python3.11}"
stamp="$venv/.made-from"

scripts/install_system.sh base
# What comes after is settings of linters and tests, which install nothing.
wanted="$(cat requirements.lock <(sed '/^\[tool\.ruff\]/,$d' pyproject.toml) | sha256sum)"
if [[ -f "$stamp" && "$(cat "$stamp")" == "$wanted" ]] && "$venv/bin/python" -c '' 2>/dev/null; then
    exit 0
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
    echo "error: $python is not a Python 3.11: install it (apt-get install python3.11 python3.11-venv, or pyenv install" \
        "3.11), or name it: make setup PYTHON=/path/to/python3.11" >&2
    exit 1
fi
if ! "$venv/bin/python" -c '' 2>/dev/null; then
    "$python" -m venv --clear "$venv" || {
        echo "error: $python cannot make a virtual environment: apt-get install python3.11-venv" >&2
        exit 1
    }
fi
echo "installing $(grep -c == requirements.lock) packages into $venv (minutes, once)" >&2
pip=("$venv/bin/python" -m pip --disable-pip-version-check -qq)
"${pip[@]}" install -r requirements.lock
# The lock is complete, setuptools included, so nothing is resolved or fetched for the project itself. Metadata left in
# the checkout by an earlier version would hide new entry points from what runs in this folder.
rm -rf ratchet.egg-info
"${pip[@]}" install --no-deps --no-build-isolation -e .
printf '%s\n' "$wanted" > "$stamp"
