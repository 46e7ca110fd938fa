"""Many patterns looked for at once by Hyperscan: a dozen cost some 2 ms per MB, whatever is found.

It is for finding where to look, not for judging: it knows no look-around, and it finds a pattern once for every place
where it may end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def places(patterns: tuple[str, ...], text: bytes) -> list[tuple[int, int, int]]:
    """Return (position of the pattern, start, end) of what the patterns find in a text, by end."""
    found: list[tuple[int, int, int]] = []

    def note(pattern: int, start: int, end: int, flags: int, context: Any) -> None:
        found.append((pattern, start, end))

    _database(patterns).scan(text, match_event_handler=note)
    return found


@lru_cache(maxsize=8)
def _database(patterns: tuple[str, ...]) -> Any:
    import hyperscan

    database = hyperscan.Database()
    database.compile(
        expressions=[pattern.encode() for pattern in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=[hyperscan.HS_FLAG_DOTALL | hyperscan.HS_FLAG_SOM_LEFTMOST] * len(patterns),
    )
    return database
