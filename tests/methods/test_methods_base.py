from __future__ import annotations

import subprocess
import sys
import types
from importlib.metadata import version
from typing import get_args

import pytest

from ratchet.errors import ManifestError
from ratchet.methods import base


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("sft", "demonstrations"),
        ("dpo", "pairs"),
        ("orpo", "pairs"),
        ("grpo", "tasks"),
        ("gspo", "tasks"),
        ("rloo", "tasks"),
    ],
)
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


@pytest.mark.parametrize(("name", "instead"), [("ppo", "rloo or grpo"), ("reinforce", "leave-one-out")])
def test_a_method_that_the_installed_trl_lacks_is_refused_by_name_and_version(name: str, instead: str) -> None:
    with pytest.raises(ManifestError, match=rf"'{name}'.*the installed TRL {version('trl')} has no trainer.*{instead}"):
        base.method(name)


def test_a_trl_that_has_the_trainer_is_not_said_to_lack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    richer = types.SimpleNamespace(version="9.9", files=["trl/experimental/ppo/ppo_trainer.py"])
    monkeypatch.setattr(base, "distribution", lambda _: richer)
    with pytest.raises(ManifestError, match="it must be one of"):
        base.method("ppo")


@pytest.mark.parametrize("name", ["sft", "dpo", "orpo", "grpo", "gspo", "rloo"])
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
        "[base.method(name) for name in ('sft', 'dpo', 'orpo', 'grpo', 'gspo', 'rloo')]; "
        "sys.exit(sorted({'torch', 'transformers', 'trl'} & set(sys.modules)) != [])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
