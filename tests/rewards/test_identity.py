"""The identity of a reward changes with any rule, and with nothing else."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reward_world import reward

from ratchet.contracts.manifest import Reward, StepPart
from ratchet.contracts.score import Scored
from ratchet.errors import RatchetError
from ratchet.rewards import gates, verifiers
from ratchet.rewards.compose import spec_digest
from ratchet.rewards.identity import source_version

RULE = '''
import re

LIMIT = 3
PATTERN = re.compile("x+")
TABLE = {"a": frozenset({1, 2})}
UNUSED = 1


def helper(x):
    """Words."""
    return x > LIMIT


def rule(x):
    return helper(x) and PATTERN.match(x) and TABLE["a"]


def other(x):
    return x
'''


@pytest.fixture
def version(tmp_path: Path) -> Callable[[str], str]:
    def load(text: str) -> str:
        path = tmp_path / f"rule_{abs(hash(text))}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("planted_rule", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(__import__("sys").modules, "planted_rule", module)
            spec.loader.exec_module(module)
            return source_version(module.rule)

    return load


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x > LIMIT", "x >= LIMIT"),
        ("LIMIT = 3", "LIMIT = 4"),
        ('"x+"', '"x*"'),
        ("{1, 2}", "{1, 3}"),
        (" and ", " or "),
    ],
)
def test_a_change_of_the_rule_or_of_what_it_uses_changes_its_version(
    version: Callable[[str], str], old: str, new: str
) -> None:
    assert version(RULE) != version(RULE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Words."""', '"""Others."""'),
        ("return helper(x)", "# why\n    return  (helper(x))"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("    return x\n", "    return -x\n"),
        ("{1, 2}", "{2, 1}"),
    ],
)
def test_nothing_else_changes_its_version(version: Callable[[str], str], old: str, new: str) -> None:
    assert old in RULE
    assert version(RULE) == version(RULE.replace(old, new))


def _free(x: int) -> Callable[[], int]:
    return lambda: x


@pytest.mark.parametrize("rule", [_free(1), lambda: 1, functools.partial(_free, 1), len])
def test_a_rule_without_a_source_of_its_own_is_refused(rule: Callable[..., Any]) -> None:
    with pytest.raises(RatchetError, match="plain function"):
        source_version(rule)


SPEC = reward(parts={"target_tests": 1.0, "regression_tests": 3.0})


@pytest.mark.parametrize(
    "changed",
    [
        reward(parts={"target_tests": 1.0, "regression_tests": 2.0}),
        reward(parts={"target_tests": 1.0, "hidden_tests": 3.0}),
        SPEC.model_copy(update={"gates": SPEC.gates[1:]}),
        SPEC.model_copy(update={"call_discount": 0.03}),
        SPEC.model_copy(update={"malformed_penalty": 0.0}),
        SPEC.model_copy(update={"tamper_penalty": 0.1}),
        SPEC.model_copy(update={"acceptance": ("target_tests",)}),
        SPEC.model_copy(update={"canaries": ("canary-0001",)}),
        SPEC.model_copy(update={"steps": (StepPart(verifier="needed_calls", weight=0.1),)}),
    ],
)
def test_the_digest_changes_with_the_composition(changed: Reward) -> None:
    assert spec_digest(changed) != spec_digest(SPEC)


def test_order_and_scale_of_weights_are_no_rule() -> None:
    same = reward(SPEC.gates[::-1], parts={"regression_tests": 0.3, "target_tests": 0.1})
    assert spec_digest(same) == spec_digest(SPEC)


def _always(attempt: Any) -> Any:
    return Scored(value=1.0)


def _never(attempt: Any) -> Any:
    return gates.GateResult(name="no_secret", passed=False)


def test_the_digest_changes_with_the_source_of_a_rule_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    before = spec_digest(SPEC)
    with monkeypatch.context() as patch:
        patch.setitem(verifiers.VERIFIERS, "target_tests", _always)
        assert spec_digest(SPEC) != before
    with monkeypatch.context() as patch:
        patch.setitem(gates.GATES, "no_secret", _never)
        assert spec_digest(SPEC) != before
        assert spec_digest(SPEC.model_copy(update={"gates": ()})) != before
    with monkeypatch.context() as patch:
        patch.setattr(gates, "RADIUS", 7)
        assert spec_digest(SPEC) != before
    assert spec_digest(SPEC) == before


def test_a_verifier_that_is_not_used_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = spec_digest(SPEC)
    monkeypatch.setitem(verifiers.VERIFIERS, "visible_tests", _always)
    assert spec_digest(SPEC) == before


def test_what_a_process_did_before_changes_no_reward_s_identity() -> None:
    from ratchet.contracts.manifest import Reward, RewardPart
    from ratchet.deadline import within
    from ratchet.rewards.compose import spec_digest

    spec = Reward(parts=(RewardPart(verifier="hidden_tests", weight=1.0),))
    before = spec_digest(spec)
    assert within(5.0, lambda: 1) == 1
    assert spec_digest(spec) == before
