"""Deterministic verifiers, one file each, found by entry point: what an attempt is worth, in [0, 1], with evidence.

- `ratchet.verifiers`: `(Attempt) -> Scored | Invalid`, one score for the attempt;
- `ratchet.step_verifiers`: `(Attempt) -> Sequence[Scored] | Invalid`, one score per step, in order.

A verifier runs nothing itself, changes nothing, and is a plain function, because its source is its identity. What a
policy wrote and cannot be read is worth 0; what the task or the infrastructure left out makes the score invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.score import Invalid, Scored
from ratchet.errors import RatchetError

Verifier = Callable[[Attempt], Scored | Invalid]
StepVerifier = Callable[[Attempt], Sequence[Scored] | Invalid]


class Registry(MutableMapping[str, Callable[[Attempt], Any]]):
    """The rules of one entry point group by name, each loaded when it is first asked for.

    A rule that no package registers (of a notebook, of a test) is entered by assignment.
    """

    def __init__(self, group: str) -> None:
        """Make a registry; the installed packages are read at first use."""
        self.group = group
        self._points: dict[str, list[EntryPoint]] | None = None
        self._loaded: dict[str, Callable[[Attempt], Any]] = {}

    def __getitem__(self, name: str) -> Callable[[Attempt], Any]:
        """Return the rule. Raises KeyError where there is none, RatchetError where it is registered twice or broken."""
        if name not in self._loaded:
            found = self._registered()[name]
            if len(found) > 1:
                raise RatchetError(
                    f"{self.group} {name!r}",
                    seen=", ".join(point.value for point in found),
                    rule="one name stands for one rule",
                    remedy="rename one of them, or remove the package that brings it",
                )
            try:
                self._loaded[name] = found[0].load()
            except (ImportError, AttributeError) as error:
                raise RatchetError(
                    f"{self.group} {name!r}",
                    seen=found[0].value,
                    rule=f"it must be importable ({type(error).__name__}: {error})",
                    remedy="correct the entry point and install its package again",
                ) from None
        return self._loaded[name]

    def __setitem__(self, name: str, rule: Callable[[Attempt], Any]) -> None:
        """Enter a rule for this process."""
        self._loaded[name] = rule

    def __delitem__(self, name: str) -> None:
        """Take out a rule that was entered."""
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._registered(), *self._loaded}))

    def __len__(self) -> int:
        return len({*self._registered(), *self._loaded})

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in self._registered()

    def _registered(self) -> dict[str, list[EntryPoint]]:
        if self._points is None:
            points: dict[str, list[EntryPoint]] = {}
            # One distribution can be on the path twice (a checkout and its installation): the same value is one rule.
            for point in entry_points(group=self.group):
                same = points.setdefault(point.name, [])
                if point.value not in {other.value for other in same}:
                    same.append(point)
            self._points = points
        return self._points


VERIFIERS = Registry("ratchet.verifiers")
STEP_VERIFIERS = Registry("ratchet.step_verifiers")
