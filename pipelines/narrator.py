"""What a launch prints: a line as each asset starts and ends, and a line for each check that does not pass.

How long an asset worked is handed on, so that it can be kept; one that found its work done worked for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import dagster as dg

from ratchet.progress import say


class Narrator:
    """Turns Dagster's events into lines for a person."""

    def __init__(self, assets: Collection[str], worked: Callable[[str, float, str], None]) -> None:
        """Number the steps of `assets` in the order they start.

        Args:
            assets: their names.
            worked: is told of every step that worked: its name, its wall time in seconds, and `done` or `failed`.
        """
        self.assets = frozenset(assets)
        self._worked = worked
        self._reused: set[str] = set()
        self.refusals: list[str] = []
        self._started: dict[str, tuple[int, float]] = {}
        self._ended: dict[str, str] = {}
        self._checks = 0

    def __call__(self, entry: dg.EventLogEntry) -> None:
        """Take one event, as a listener of the instance."""
        event = entry.dagster_event
        if event is None:
            return
        if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            self._check(event.asset_check_evaluation_data)
        step = event.step_key
        if step not in self.assets:
            return
        if event.is_step_start:
            self._started[step] = (len(self._started) + 1, time.monotonic())
            say(f"{self._place(step)} ...")
        elif event.is_step_materialization:
            self._ended[step] = self._words(step, event.step_materialization_data.materialization.metadata)
        elif event.is_step_success:
            say(f"{self._place(step)}: {self._ended.get(step, 'done')}")
            if step not in self._reused:
                self._worked(step, time.monotonic() - self._started[step][1], "done")
        elif event.is_step_failure:
            say(f"{self._place(step)}: FAILED")
            self._worked(step, time.monotonic() - self._started[step][1], "failed")

    def close(self) -> None:
        """Say how the checks went."""
        say(f"{self._checks} checks, {len(self.refusals)} did not pass")

    def _place(self, step: str) -> str:
        width = len(str(len(self.assets)))
        return f"[{self._started[step][0]:>{width}}/{len(self.assets)}] {step}"

    def _words(self, step: str, metadata: object) -> str:
        found = {key: value.value for key, value in dict(metadata).items()}  # type: ignore[call-overload]
        took = time.monotonic() - self._started[step][1]
        if found.get("reused"):
            self._reused.add(step)
        how = "reused" if found.get("reused") else f"{took:.1f} s"
        return f"{found.get('summary', 'done')} ({how})"

    def _check(self, found: dg.AssetCheckEvaluation) -> None:
        self._checks += 1
        if not found.passed:
            line = f"{found.check_name} of {found.asset_key.to_user_string()}: {found.description or 'no reason given'}"
            self.refusals.append(line)
            say(f"  check does not pass: {line}")
