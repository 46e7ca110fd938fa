"""Call ids and who answers whom.

An id that is missing, or that an earlier call of the same trajectory already has, is re-issued as `trajectory:step:i`
(`i` counts the calls of the step from 0) and the original is kept in the call's `extra.original_call_id`. A result
finds its call by id, the nearest unanswered one first; else by order, the first unanswered call of the nearest step
that has one; else it stays an orphan. Each deviation is an anomaly code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(slots=True)
class _Call:
    step_id: int
    issued: str
    name: str | None
    answered: bool = False


class Calls:
    """The calls of one trajectory, in order."""

    def __init__(self, name: Callable[[], str]) -> None:
        """Start with none; `name` gives the trajectory's name, and is asked once, where an id is re-issued at all."""
        self._name = cache(name)
        self.anomalies: list[str] = []
        self._calls: list[_Call] = []
        self._named: dict[str, list[_Call]] = {}
        """The calls by their original ids."""
        self._taken: set[str] = set()

    def issue(self, step_id: int, position: int, given: Any, name: str | None) -> tuple[str, dict[str, Any]]:
        """Register a call.

        Returns:
            Its id, unique in the trajectory, and what its `extra` must keep.
        """
        if type(given) is str and given and given not in self._taken:  # as it mostly is
            self._taken.add(given)
            call = _Call(step_id, given, name)
            self._calls.append(call)
            self._named[given] = [call]
            return given, {}
        original = None if given is None or given == "" else str(given)
        issued, kept = original, {}
        if original is None:
            self.anomalies.append("missing_call_id")
        elif not isinstance(given, str):
            self.anomalies.append("call_id_not_a_string")
            kept = {"original_call_id": given}
        if original is not None and original in self._taken:
            self.anomalies.append("duplicate_call_id")
            issued, kept = None, {"original_call_id": given}
        if issued is None:
            issued = f"{self._name()}:{step_id}:{position}"
            while issued in self._taken:
                issued += "'"
        self._taken.add(issued)
        call = _Call(step_id, issued, name)
        self._calls.append(call)
        if original is not None:
            self._named.setdefault(original, []).append(call)
        return issued, kept

    def answer(self, given: Any, name: str | None = None, *, step_id: int | None = None) -> tuple[int, str] | None:
        """Find the call that a result answers.

        Args:
            given: the id that the result names, or None.
            name: the tool that it names, or None.
            step_id: where order decides, look at this step alone.

        Returns:
            (step id, call id), or None for an orphan.
        """
        wanted = given if type(given) is str else "" if given is None else str(given)
        same = self._named.get(wanted, [])  # none is named ""
        if len(same) == 1 and not same[0].answered:  # as it mostly is
            call = same[0]
            call.answered = True
            return call.step_id, call.issued
        waiting = [call for call in same if not call.answered]
        if same and not waiting:
            self.anomalies.append("repeated_result")
            return same[-1].step_id, same[-1].issued
        if not waiting:
            waiting = [
                call for call in self._calls if not call.answered and (step_id is None or call.step_id == step_id)
            ]
            named = [call for call in waiting if name is not None and call.name == name]
            waiting = named or waiting
            if not waiting:
                self.anomalies.append("orphan_result")
                return None
            self.anomalies.append("result_paired_by_order")
        nearest = max(call.step_id for call in waiting)
        chosen = next(call for call in waiting if call.step_id == nearest)
        chosen.answered = True
        return chosen.step_id, chosen.issued

    @property
    def unanswered(self) -> int:
        """Number of calls that no result answers."""
        return sum(1 for call in self._calls if not call.answered)
