"""Union-find: what is joined to the same thing is one group."""

from __future__ import annotations

from collections.abc import Iterable


class Groups:
    """Groups of numbered things."""

    def __init__(self, count: int) -> None:
        """Start with everything on its own."""
        self._parents = list(range(count))

    def find(self, number: int) -> int:
        """The representative of a thing's group."""
        root = number
        while self._parents[root] != root:
            root = self._parents[root]
        while self._parents[number] != root:
            self._parents[number], number = root, self._parents[number]
        return root

    def join(self, numbers: Iterable[int]) -> None:
        """Put things into one group."""
        first: int | None = None
        for number in numbers:
            root = self.find(number)
            if first is None:
                first = root
            else:
                self._parents[root] = first

    def labels(self) -> list[int]:
        """The representative of everything."""
        return [self.find(number) for number in range(len(self._parents))]
