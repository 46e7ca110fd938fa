"""The `repair` environment as the tests open it: all its tools, generous limits."""

from __future__ import annotations

from typing import Any

from ratchet.contracts.environment import ActionLimits
from ratchet.contracts.manifest import EnvironmentSection
from ratchet.environments.repair.episode import TOOLS


def section(**settings: Any) -> EnvironmentSection:
    return EnvironmentSection(
        name="repair",
        version="1",
        tools=tuple(TOOLS),
        limits=ActionLimits(max_calls=20, max_tokens_per_turn=3, episode_timeout_s=60),
        settings=settings,
    )
