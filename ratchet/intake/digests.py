"""A growing set of SHA-256 digests at 32 bytes each, asked and filled in blocks.

Sorted arrays whose sizes at least double from one to the next (the logarithmic method of Bentley and Saxe, 1980): a
block is looked up in each of them, and a digest is moved O(log n) times in all. A Python set of the same would take
four times the memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Digests = np.ndarray[Any, Any]


def packed(digests: pa.ChunkedArray | pa.Array | Iterable[str]) -> Digests:
    """Return hexadecimal digests as an array of 32-byte strings. Raises ValueError for one that is none."""
    import numpy as np

    texts = digests.to_pylist() if hasattr(digests, "to_pylist") else list(digests)
    if any(len(text) != 64 for text in texts):
        raise ValueError("a digest has 64 hexadecimal digits")
    return np.frombuffer(bytes.fromhex("".join(texts)), dtype="S32")


class DigestSet:
    """Digests that were seen."""

    def __init__(self) -> None:
        """Start with none."""
        self._levels: list[Digests] = []

    def __len__(self) -> int:
        return sum(len(level) for level in self._levels)

    def seen(self, digests: Digests) -> Digests:
        """Return, for each digest of a block, whether it is in the set (boolean, same length)."""
        import numpy as np

        found = np.zeros(len(digests), dtype=bool)
        for level in self._levels:
            place = np.searchsorted(level, digests)
            place[place == len(level)] = 0
            found |= level[place] == digests
        return found

    def add(self, digests: Digests) -> None:
        """Add a block of digests, none of which is in the set or twice in the block."""
        import numpy as np

        if not len(digests):
            return
        block = np.sort(digests)
        while self._levels and len(self._levels[-1]) < 2 * len(block):
            block = np.sort(np.concatenate([self._levels.pop(), block]), kind="stable")
        self._levels.append(block)
