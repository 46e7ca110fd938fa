"""Reading a manifest: one YAML file, its short form, and values given on the command line.

Every mistake is told in one message. `fast` holds overrides for a short run of the same experiment, which is another
experiment with a digest of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ratchet.contracts.manifest import Manifest
from ratchet.errors import ManifestError


def load_manifest(path: str | Path, *, fast: bool = False, overrides: dict[str, Any] | None = None) -> Manifest:
    """Read and validate a manifest.

    Args:
        path: the YAML file.
        fast: merge the file's `fast` section over the rest.
        overrides: further values by dotted path, e.g. `{"seed": 7, "splits.train": 60}`.

    Raises:
        ManifestError: one message with every mistake (path, value seen, rule) and the remedy.
    """
    try:
        body = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(
            str(path), rule=f"it must be a readable YAML file ({error})", remedy="correct the file"
        ) from None
    if not isinstance(body, dict):
        raise ManifestError(
            str(path), seen=type(body).__name__, rule="it must be a mapping", remedy="see experiments/repair.yaml"
        )
    short = body.pop("fast", None) or {}
    if not isinstance(short, dict):
        raise ManifestError(
            f"{path}: fast", seen=short, rule="it must be a mapping", remedy="see experiments/repair.yaml"
        )
    if fast:
        body = _merged(body, short)
    for dotted, value in (overrides or {}).items():
        nested: Any = value
        for key in reversed(dotted.split(".")):
            nested = {key: nested}
        body = _merged(body, nested)
    try:
        return Manifest.model_validate(body)
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'manifest'} is {_short(item['input'])}: {_rule(item['msg'])}"
            for item in error.errors()
        )
        raise ManifestError(str(path), rule=mistakes, remedy="correct every field named here") from None


def read_overrides(settings: Sequence[str]) -> dict[str, Any]:
    """Read settings of the form `key=value`, as a command line has them, for `load_manifest`.

    Args:
        settings: each a dotted path, `=`, and a value in YAML, e.g. `splits.train=60`.

    Raises:
        ManifestError: a setting without a key or without `=`, or whose value is not YAML.
    """
    found = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            equals = ""
        if not key.strip() or not equals:
            raise ManifestError(
                "--set", seen=setting, rule="it must be KEY=VALUE with a value in YAML", remedy="such as --set seed=7"
            )
    return found


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Deep merge; a list of named mappings is merged by name, any other value replaces.

    Raises ManifestError where an override names what the list does not have: it would be dropped in silence.
    """
    result = dict(base)
    for key, value in over.items():
        seen = result.get(key)
        if isinstance(value, dict) and isinstance(seen, dict):
            result[key] = _merged(seen, value)
        elif (
            isinstance(value, dict)
            and isinstance(seen, list)
            and all(isinstance(item, dict) and "name" in item for item in seen)
        ):
            names = [item["name"] for item in seen]
            unknown = sorted(set(value) - set(names), key=str)
            if unknown:
                raise ManifestError(
                    f"override of {key}", seen=unknown, rule=f"it must name one of {names}", remedy="correct the name"
                )
            result[key] = [_merged(item, value.get(item["name"]) or {}) for item in seen]
        else:
            result[key] = value
    return result


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _rule(message: str) -> str:
    return re.sub(r"^Value error, ", "", message)
