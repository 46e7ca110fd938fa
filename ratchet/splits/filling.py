"""From groups to splits: whole groups to one split each, then exactly as many tasks as were asked for.

Groups go, large ones first and by seeded hash within a size, to the split that needs their segments most (iterative
stratification after Sechidis, Tsoumakas and Vlahavas 2011, "On the stratification of multi-label data"). Where that
leaves a split short though the groups suffice, an exact search over the sums decides. Every group gets a split, so
that each split rests on as many groups as it can; tasks are then taken in turn from all groups of the split.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ratchet.contracts.environment import Task
from ratchet.errors import SplitError

_MAX_CELLS = 50_000_000  # 200 MB of sums


def seeded(seed: int, text: str) -> str:
    """A hash that orders `text` by seed, the same everywhere."""
    return hashlib.sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()


def assign(groups: Sequence[Sequence[Task]], wanted: Mapping[str, int], seed: int) -> dict[str, list[Sequence[Task]]]:
    """Give every group to one split, so that each split's groups hold at least the tasks it wants.

    Raises:
        SplitError: no assignment of whole groups can do it; with the numbers.
    """
    available = sum(map(len, groups))
    sizes = ", ".join(f"{name} {size}" for name, size in wanted.items())
    largest = max(map(len, groups), default=0)
    if available < sum(wanted.values()) or len(groups) < len(wanted):
        raise SplitError(
            "splits",
            seen=sizes,
            rule=f"{sum(wanted.values())} tasks in {len(wanted)} splits need as many tasks and a group for each split, "
            f"and there are {available} tasks in {len(groups)} groups, the largest of {largest}",
            remedy="ask for smaller splits, add tasks, or look at what joins the groups",
        )
    keyed = sorted(groups, key=lambda one: (-len(one).bit_length(), seeded(seed, min(task.task_id for task in one))))
    placed = _stratified(keyed, wanted)
    if any(_count(placed[name]) < size for name, size in wanted.items()):
        placed = _searched(keyed, wanted)
    if any(_count(placed[name]) < size for name, size in wanted.items()):
        raise SplitError(
            "splits",
            seen=sizes,
            rule=f"no assignment of whole groups meets these sizes: {available} tasks in {len(groups)} groups, "
            f"the largest of {', '.join(map(str, sorted(map(len, groups), reverse=True)[:5]))} tasks",
            remedy="ask for smaller splits, add tasks of other repos, or look at what joins the largest groups",
        )
    return placed


def take(groups: Sequence[Sequence[Task]], wanted: int, shares: Mapping[str, float], seed: int) -> list[Task]:
    """Take `wanted` tasks: segments near their `shares`, groups in turn, the rest by seeded hash."""
    held = Counter(task.segment for one in groups for task in one)
    quota: Counter[str] = Counter()
    for _ in range(wanted):
        free = [segment for segment in sorted(held) if quota[segment] < held[segment]]
        quota[max(free, key=lambda segment: shares[segment] * wanted - quota[segment])] += 1
    ranked: list[tuple[int, str, Task]] = []
    for one in groups:
        turn: Counter[str] = Counter()
        for order, task in sorted((seeded(seed, task.task_id), task) for task in one):
            ranked.append((turn[task.segment], order, task))
            turn[task.segment] += 1
    taken: list[Task] = []
    for _, _, task in sorted(ranked, key=lambda item: item[:2]):
        if quota[task.segment]:
            quota[task.segment] -= 1
            taken.append(task)
    return taken


def _count(groups: Sequence[Sequence[Task]]) -> int:
    return sum(map(len, groups))


def _stratified(groups: Sequence[Sequence[Task]], wanted: Mapping[str, int]) -> dict[str, list[Sequence[Task]]]:
    total = Counter(task.segment for one in groups for task in one)
    available, asked = sum(total.values()), sum(wanted.values())
    placed: dict[str, list[Sequence[Task]]] = {name: [] for name in wanted}
    filled: dict[str, Counter[str]] = {name: Counter() for name in wanted}
    for one in groups:
        segments = Counter(task.segment for task in one)
        # A split that lacks tasks comes before any that only gets more to choose from.
        short = [name for name, size in wanted.items() if filled[name].total() < size] or list(wanted)

        def need(name: str, segments: Counter[str] = segments) -> float:
            part = wanted[name] / asked
            ideal = {segment: total[segment] * part for segment in segments}
            by_segment = sum(n * (1 - filled[name][segment] / ideal[segment]) for segment, n in segments.items())
            return by_segment / segments.total() + (1 - filled[name].total() / (available * part))

        chosen = max(short, key=lambda name: (need(name), wanted[name]))
        placed[chosen].append(one)
        filled[chosen].update(segments)
    return placed


def _searched(groups: Sequence[Sequence[Task]], wanted: Mapping[str, int]) -> dict[str, list[Sequence[Task]]]:
    """Exact search: for every reachable pair of sums of the two smaller splits, the largest sum of the third."""
    small, middle, large = sorted(wanted, key=lambda name: wanted[name])
    rows, columns = wanted[small], wanted[middle]
    placed: dict[str, list[Sequence[Task]]] = {name: [] for name in wanted}
    if len(groups) * (rows + 1) * (columns + 1) > _MAX_CELLS:
        return placed
    best: NDArray[np.int32] = np.full((rows + 1, columns + 1), -1, dtype=np.int32)
    best[0, 0] = 0
    history = [best]
    for one in groups:
        to_large = np.where(best >= 0, best + len(one), -1)
        to_others = np.maximum(_shifted(best, len(one)), _shifted(best.T, len(one)).T)
        best = np.maximum(to_large, to_others).astype(np.int32)
        history.append(best)
    row, column = rows, columns
    if best[row, column] < wanted[large]:
        return placed
    for at in range(len(groups) - 1, -1, -1):
        size, before, value = len(groups[at]), history[at], history[at + 1][row, column]
        if before[row, column] >= 0 and before[row, column] + size == value:
            placed[large].append(groups[at])
            continue
        earlier = next((r for r in _sources(row, rows, size) if before[r, column] == value), None)
        if earlier is not None:
            placed[small].append(groups[at])
            row = earlier
        else:
            placed[middle].append(groups[at])
            column = next(c for c in _sources(column, columns, size) if before[row, c] == value)
    return placed


def _shifted(sums: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    """Move the sums `size` rows on; what passes the last row stays there."""
    moved = np.full_like(sums, -1)
    last = len(sums) - 1
    if size < last:
        moved[size:last] = sums[: last - size]
    moved[last] = sums[max(0, last - size) :].max(axis=0)
    return moved


def _sources(place: int, last: int, size: int) -> range:
    """Where `_shifted` took a value at `place` from."""
    if place == last:
        return range(max(0, last - size), last + 1)
    return range(place - size, place - size + 1) if place >= size else range(0)
