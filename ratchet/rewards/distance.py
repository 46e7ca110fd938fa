"""How large a change of Python source is: the constrained edit distance between two syntax trees.

Relabelling, inserting or deleting a node costs 1; separate subtrees stay separate (K. Zhang, "Algorithms for the
constrained editing distance between ordered labeled trees and related problems", Pattern Recognition 28(3), 1995). It
is never below the unconstrained tree edit distance, so a change is never called smaller than it is, and takes time
proportional to the product of the sizes at worst. Equal subtrees cost nothing at once, and a branch is followed only
where the difference of the sizes leaves room for something better: a small change of a large tree is cheap.
"""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.rewards.syntax import Tree, parse, renames, tree


def change_size(original: str, final: str, *, at_most: int) -> int | None:
    """Return the nodes that change between two modules, up to consistent renames; None where one does not parse.

    Args:
        original: module text.
        final: module text.
        at_most: a change that is certainly larger is not measured to the end; what is returned is then a lower bound
            above `at_most`.
    """
    before, after = parse(original), parse(final)
    if before is None or after is None:
        return None
    left, right = tree(before), tree(after)
    grown = abs(left.size - right.size)
    if grown > at_most:
        return grown
    renamed = (tree(after, names) for names in renames(before, after))
    return min(tree_distance(left, candidate) for candidate in (right, *renamed))


def tree_distance(left: Tree, right: Tree) -> int:
    """Return the constrained edit distance of two trees."""
    return _Distance().trees(left, right)


class _Distance:
    """One comparison, with what it has measured so far. Trees are known by identity, and outlive the comparison."""

    def __init__(self) -> None:
        self._trees: dict[tuple[int, int], int] = {}
        self._forests: dict[tuple[int, int], int] = {}

    def trees(self, left: Tree, right: Tree) -> int:
        if left.key == right.key:
            return 0
        known = self._trees.get((id(left), id(right)))
        if known is not None:
            return known
        best = self.forests(left, right) + (left.label != right.label)
        for child in right.children:
            if _room(left.size, right.size, child.size) < best:
                best = min(best, right.size - child.size + self.trees(left, child))
        for child in left.children:
            if _room(right.size, left.size, child.size) < best:
                best = min(best, left.size - child.size + self.trees(child, right))
        self._trees[id(left), id(right)] = best
        return best

    def forests(self, left: Tree, right: Tree) -> int:
        """Distance between the children of two nodes."""
        known = self._forests.get((id(left), id(right)))
        if known is not None:
            return known
        best = self._aligned(left.children, right.children)
        for child in right.children:
            if _room(left.size, right.size, child.size) < best:
                best = min(best, right.size - child.size + self.forests(left, child))
        for child in left.children:
            if _room(right.size, left.size, child.size) < best:
                best = min(best, left.size - child.size + self.forests(child, right))
        self._forests[id(left), id(right)] = best
        return best

    def _aligned(self, left: Sequence[Tree], right: Sequence[Tree]) -> int:
        start, short = 0, min(len(left), len(right))
        while start < short and left[start].key == right[start].key:
            start += 1
        stop = 0
        while stop < short - start and left[-1 - stop].key == right[-1 - stop].key:
            stop += 1
        left, right = left[start : len(left) - stop], right[start : len(right) - stop]
        row = [0]
        for child in right:
            row.append(row[-1] + child.size)
        for old in left:
            previous, row = row, [row[0] + old.size]
            for column, new in enumerate(right):
                best = min(previous[column + 1] + old.size, row[column] + new.size)
                if previous[column] + abs(old.size - new.size) < best:
                    best = min(best, previous[column] + self.trees(old, new))
                row.append(best)
        return row[-1]


def _room(other: int, whole: int, child: int) -> int:
    """Lower bound of the cost where all of `whole` but one child is inserted or deleted."""
    return whole - child + abs(other - child)
