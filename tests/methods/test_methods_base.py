from __future__ import annotations

import subprocess
import sys
import types
from typing import get_args

import pytest

from ratchet.errors import ManifestError
from ratchet.methods import base


@pytest.mark.parametrize(("name", "needs"), [("sft", "demonstrations"), ("dpo", "pairs"), ("grpo", "tasks")])
def test_a_method_is_found_by_its_entry_point(name: str, needs: str) -> None:
    found = base.method(name)
    assert isinstance(found, types.ModuleType)
    assert needs == found.NEEDS
    assert needs in get_args(base.Needs)
    assert issubclass(found.Settings, base.Settings)
    assert callable(found.fit)


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(ManifestError, match=r"'guesswork'.*grpo"):
        base.method("guesswork")


@pytest.mark.parametrize("name", ["sft", "dpo", "grpo"])
def test_every_setting_is_described_and_has_a_default(name: str) -> None:
    settings = base.method(name).Settings
    settings()
    assert all(field.description for field in settings.model_fields.values())


def test_every_mistake_in_settings_is_named_in_one_message() -> None:
    with pytest.raises(ManifestError) as caught:
        base.parse(base.method("grpo").Settings, {"steps": 0, "lr": "fast", "typo": 1}, "methods.rl.settings")
    message = str(caught.value)
    assert message.startswith("methods.rl.settings")
    assert all(part in message for part in ("steps is 0", "lr is 'fast'", "typo is 1"))


def test_the_registry_and_the_parent_side_load_no_torch() -> None:
    code = (
        "import sys; from ratchet.methods import base, trainer; "
        "[base.method(name) for name in ('sft', 'dpo', 'grpo')]; "
        "sys.exit(sorted({'torch', 'transformers', 'trl'} & set(sys.modules)) != [])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
