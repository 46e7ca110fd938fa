"""Finished episodes of work that may still stop: one trajectory a line, in a file that is dropped when all is done.

A stage that stops, because too many episodes are invalid or because its process died, goes on from here; a line that
the end cut off is played again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.score import Invalid
from ratchet.contracts.trajectory import Trajectory

Key = tuple[str | None, int | None]
"""Task and seed of an episode."""


class Kept:
    """The finished episodes of one piece of work. One process at a time writes."""

    def __init__(self, path: Path) -> None:
        """Use the file at `path`, which need not be there."""
        self.path = path

    def read(self) -> dict[Key, Trajectory]:
        """Return the valid episodes by task and seed."""
        found: dict[Key, Trajectory] = {}
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        for line in lines:
            try:
                trajectory = Trajectory.model_validate_json(line)
            except ValidationError:  # cut off by the end of the process that wrote it
                continue
            found[(trajectory.ratchet.task_id, trajectory.ratchet.seed)] = trajectory
        return found

    def add(self, trajectories: Iterable[Trajectory]) -> None:
        """Keep those that are valid."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with self.path.open("ab") as file:
            file.write(b"" if whole else b"\n")
            for trajectory in trajectories:
                if not isinstance(trajectory.ratchet.score, Invalid):
                    content = trajectory.model_dump(mode="json", exclude_none=True)
                    file.write(canonical_json(content).encode() + b"\n")

    def drop(self) -> None:
        """Forget them: what they were kept for is written."""
        self.path.unlink(missing_ok=True)
