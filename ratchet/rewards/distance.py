"""How large a change of Python source is: the constrained edit distance between two syntax trees.

Relabelling, inserting or deleting a node costs 1; separate subtrees stay separate (K. Zhang, "Algorithms for the
constrained editing distance between ordered labeled trees and related problems", Pattern Recognition 28(3), 1995). It
is never below the unconstrained tree edit distance, so a change is never called smaller than it is, and takes time
proportional to the product of the sizes at worst. Equal subtrees cost nothing at once, a branch is followed only where
the difference of the sizes leaves room for something better, and nothing is measured beyond a limit (siblings are
aligned within a band, E. Ukkonen, "Algorithms for approximate string matching", Information and Control 64, 1985): a
change that nobody permits is cheap to refuse, however large the trees.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from ratchet.rewards.syntax import Tree, parse, renames, tree


def change_size(original: str, final: str, *, at_most: int) -> int | None:
    """Return the nodes that change between two modules, up to consistent renames; None where one does not parse.

    Args:
        original: module text.
        final: module text.
        at_most: a larger change is not measured to the end; what is returned is then only sure to be above `at_most`.
    """
    before, after = parse(original), parse(final)
    if before is None or after is None:
        return None
    left, right = tree(before), tree(after)
    grown = abs(left.size - right.size)
    if grown > at_most:
        return grown
    renamed = (tree(after, names) for names in renames(before, after))
    return min(tree_distance(left, candidate, at_most=at_most) for candidate in (right, *renamed))


def tree_distance(left: Tree, right: Tree, *, at_most: int | None = None) -> int:
    """Return the constrained edit distance of two trees; some number above `at_most` where it is above that."""
    return _Distance(left.size + right.size if at_most is None else at_most).trees(left, right)


class _Distance:
    """One comparison, with what it has measured so far. Trees are known by identity, and outlive the comparison.

    Every result up to the limit is exact, and every other one is above the limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._trees: dict[tuple[int, int], int] = {}
        self._forests: dict[tuple[int, int], int] = {}

    def trees(self, left: Tree, right: Tree) -> int:
        if left.key == right.key:
            return 0
        if abs(left.size - right.size) > self.limit:
            return self.limit + 1
        known = self._trees.get((id(left), id(right)))
        if known is not None:
            return known
        best = min(self.limit + 1, self.forests(left, right) + (left.label != right.label))
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
        best = min(self.limit + 1, self._aligned(left.children, right.children))
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
        # What stands left of a cell and what stands right of it differ by no less than their sizes do: only the cells
        # of the band in which that is within the limit are kept.
        far, sizes, seen = self.limit + 1, list(accumulate((child.size for child in right), initial=0)), 0
        row = {column: size for column, size in enumerate(sizes) if size < far}
        for old in left:
            previous, row, seen = row, {}, seen + old.size
            for column in range(bisect_left(sizes, seen - self.limit), bisect_right(sizes, seen + self.limit)):
                best = previous.get(column, far) + old.size
                if column:
                    new = right[column - 1]
                    best = min(best, far, row.get(column - 1, far) + new.size)
                    both = previous.get(column - 1, far)
                    if both + abs(old.size - new.size) < best:
                        best = min(best, both + self.trees(old, new))
                if best < far:
                    row[column] = best
        return row.get(len(right), far)


def _room(other: int, whole: int, child: int) -> int:
    """Lower bound of the cost where all of `whole` but one child is inserted or deleted."""
    return whole - child + abs(other - child)
