"""The book of a harness search: an Optuna study and what was played, so that a killed search goes on.

What was played is one line each in `played.jsonl`, written when it is whole; the same harness on the same cases is
never played twice. Every proposal is drawn by a sampler whose seed depends on the number of finished trials alone, so
a search that was interrupted proposes what an uninterrupted one does. A trial that a dead process left open is failed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.policy import Harness

if TYPE_CHECKING:
    from ratchet.methods.base import Guard, Spend, Stopped
    from ratchet.methods.harness_search import Attempt, Figures


class Open(NamedTuple):
    """A trial that is being played."""

    number: int
    """From 1, finished trials alone."""
    trial: Any


class Tried(NamedTuple):
    """A finished trial."""

    number: int
    harness: Harness
    figures: Figures
    seconds: float
    """Wall time of the search when it was finished, in seconds, resumed time included."""


class Book:
    """One search. One process at a time writes."""

    def __init__(
        self,
        path: Path,
        facts: str,
        seed: int,
        guard: Guard | None,
        max_wall_s: float,
        spend: Spend | None,
        play: Callable[[Harness, Sequence[tuple[str, int]]], list[Attempt]],
    ) -> None:
        """Open the study at `path`, or make it; a search with other `facts` in the same file is another study."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._seed, self._facts = optuna, seed, facts
        self._guard, self._play = guard, play
        self._max_wall_s, self._spend = max_wall_s, spend
        self._file = path.with_name("played.jsonl")
        self._lines = [line for line in read_lines(self._file) if line["facts"] == facts]
        self._known = {line["key"]: line for line in self._lines}
        self._before = max((line["elapsed_s"] for line in self._lines), default=0.0)
        self._started = time.monotonic()
        self.stopped: Stopped = "finished"
        self._study = optuna.create_study(
            storage=f"sqlite:///{path}", study_name=facts, direction="maximize", load_if_exists=True
        )
        for left in self._study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            self._study.tell(left.number, state=optuna.trial.TrialState.FAIL)

    @property
    def seconds(self) -> float:
        """Wall time so far, in seconds, that of interrupted parts included."""
        return self._before + time.monotonic() - self._started

    @property
    def attempts(self) -> int:
        """Attempts played."""
        return sum(len(line["attempts"]) for line in self._lines)

    @property
    def cost(self) -> float:
        """What they cost, in the currency of the price list."""
        return math.fsum(attempt[2] for line in self._lines for attempt in line["attempts"])

    def seconds_of(self, key: str) -> float:
        """Wall time of the search when something was played, in seconds."""
        return next((line["elapsed_s"] for line in self._lines if line["name"] == key), 0.0)

    def played(self, name: str, harness: Harness, requests: Sequence[tuple[str, int]]) -> list[Attempt]:
        """Play cases under a harness, or remember how they went."""
        from ratchet.methods.harness_search import Attempt

        key = digest([harness, requests])
        if key not in self._known:
            if self._guard is not None:
                self._guard()
            attempts = self._play(harness, requests)
            line = {"facts": self._facts, "key": key, "name": name, "elapsed_s": self.seconds, "attempts": attempts}
            add_line(self._file, line)
            self._lines.append(json.loads(canonical_json(line)))
            self._known[key] = self._lines[-1]
        return [Attempt(*one) for one in self._known[key]["attempts"]]

    def tried(self) -> list[Tried]:
        """The finished trials, in order."""
        from ratchet.methods.harness_search import Figures

        done = self._study.get_trials(deepcopy=False, states=(self._optuna.trial.TrialState.COMPLETE,))
        kept = [trial.user_attrs for trial in done]
        return [
            Tried(number, Harness.model_validate(one["harness"]), Figures(**one["figures"]), one["elapsed_s"])
            for number, one in enumerate(kept, 1)
        ]

    def trials(self, count: int, share: float, first: Sequence[dict[str, Any]] = ()) -> Iterator[Open]:
        """Open trials, one after the other, until there are `count` or a share of a budget is spent.

        Args:
            count: trials in all, those that are finished already among them.
            share: of a budget.
            first: what the first trials suggest, by parameter.
        """
        for number in range(len(self.tried()) + 1, count + 1):
            if self.seconds >= share * self._max_wall_s:
                self.stopped = "wall_budget"
            elif self._spend is not None and self._spend.cost(self.seconds, 0) >= share * self._spend.limit:
                self.stopped = "cost_budget"
            if self.stopped != "finished":
                return
            # A dead trial takes no part: neither in the numbers, nor, without the constant liar, in what is proposed.
            self._study.sampler = self._optuna.samplers.TPESampler(
                seed=int(digest([self._seed, number])[:8], 16), constant_liar=False
            )
            if number <= len(first) and not self._waiting():
                self._study.enqueue_trial(first[number - 1])
            yield Open(number, self._study.ask())

    def _waiting(self) -> bool:
        """Whether a process that died left the next proposal waiting."""
        waiting = (self._optuna.trial.TrialState.WAITING,)
        return bool(self._study.get_trials(deepcopy=False, states=waiting))

    def finish(self, done: Open, harness: Harness, seen: Figures) -> None:
        """Close a trial with its score."""
        done.trial.set_user_attr("harness", harness.model_dump(mode="json"))
        done.trial.set_user_attr("figures", seen._asdict())
        done.trial.set_user_attr("elapsed_s", self.seconds)
        self._study.tell(done.trial, seen.score)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file, each of plain JSON; one that the end of its writer cut off is none."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def add_line(path: Path, content: dict[str, Any]) -> None:
    """Add a line of plain JSON to a file, on a line of its own whatever was cut off before."""
    whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    with path.open("ab") as file:
        file.write((b"" if whole else b"\n") + canonical_json(content).encode() + b"\n")
