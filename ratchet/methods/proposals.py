"""What a harness search proposes: the start with other settings, and never with more permissions.

Tools, hosts and paths are the start's, limits never exceed it or the experiment's, and none of its approval rules is
dropped: there is no way to propose otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ratchet.contracts.environment import EnvironmentSpec, Searchable
from ratchet.contracts.policy import Harness, unknown_rules

if TYPE_CHECKING:
    from ratchet.methods.harness_search import Settings


class Trial(Protocol):
    """What of an Optuna trial a proposal uses."""

    def suggest_float(self, name: str, low: float, high: float) -> float:
        """A number in a range."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """A whole number in a range, both ends included."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of the choices."""


def propose(trial: Trial, start: Harness, allowed: EnvironmentSpec, offered: Searchable, settings: Settings) -> Harness:
    """A harness that asks for nothing beyond the start and the permissions."""
    searched = settings.search
    changed: dict[str, Any] = {}
    if "decoding" in searched:
        changed["decoding"] = start.decoding.model_copy(
            update={
                "temperature": trial.suggest_float("temperature", *settings.temperature),
                "top_p": trial.suggest_float("top_p", *settings.top_p),
            }
        )
    if "limits" in searched:
        most = min(start.max_calls, allowed.limits.max_calls)
        changed["max_calls"] = trial.suggest_int("max_calls", max(1, most // 2), most)
        most = min(start.decoding.max_tokens_per_turn, allowed.limits.max_tokens_per_turn)
        tokens = trial.suggest_int("max_tokens_per_turn", max(1, most // 2), most)
        changed["decoding"] = changed.get("decoding", start.decoding).model_copy(update={"max_tokens_per_turn": tokens})
    if "retries" in searched:
        changed["retries"] = trial.suggest_int("retries", 0, settings.max_retries)
    if "options" in searched and offered.options:
        chosen = {name: trial.suggest_categorical(f"option {name}", values) for name, values in offered.options.items()}
        # What is the environment's default is left out, so that a choice of nothing is the same harness.
        kept = {name: one for name, one in chosen.items() if name in start.options or one != offered.options[name][0]}
        changed["options"] = {**start.options, **kept}
    if "approval_rules" in searched:
        unfit = {*start.approval_rules, *unknown_rules(offered.approval_rules, start.tools)}
        more = [rule for rule in offered.approval_rules if rule not in unfit]
        added = [rule for rule in more if trial.suggest_categorical(f"ask: {rule}", (False, True))]
        changed["approval_rules"] = (*start.approval_rules, *added)
    return start.model_copy(update=changed)


class _Start:
    """A trial that suggests what the start has, and notes what else there was to choose."""

    def __init__(self, start: Harness, options: Mapping[str, Sequence[str]]) -> None:
        kept = {name: start.options.get(name, values[0]) for name, values in options.items()}
        self._has: dict[str, Any] = {
            **start.decoding.model_dump(),
            "max_calls": start.max_calls,
            "retries": start.retries,
            **{f"option {name}": one for name, one in kept.items()},
        }
        self.chosen: dict[str, Any] = {}
        self.others: list[tuple[str, Any]] = []

    def suggest_float(self, name: str, low: float, high: float) -> float:
        self.chosen[name] = min(max(float(self._has[name]), low), high)
        return float(self.chosen[name])

    def suggest_int(self, name: str, low: int, high: int) -> int:
        self.chosen[name] = min(max(int(self._has[name]), low), high)
        return int(self.chosen[name])

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self.chosen[name] = self._has.get(name, False)
        self.others += [(name, one) for one in choices if one != self.chosen[name]]
        return self.chosen[name]


def first_proposals(
    start: Harness, allowed: EnvironmentSpec, offered: Searchable, settings: Settings
) -> list[dict[str, Any]]:
    """What is suggested first: the start as far as the ranges reach, and each other choice alone."""
    still = _Start(start, offered.options)
    propose(still, start, allowed, offered, settings)
    return [still.chosen, *({**still.chosen, name: one} for name, one in still.others)]
