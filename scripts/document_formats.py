"""Writes the table of docs/formats.md: a row for each registered format, from what its module says of itself.

Run with `python scripts/document_formats.py` after a format was added, or what it keeps or drops was changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.intake.formats import formats

PAGE = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
BEGIN = "<!-- The table is written by scripts/document_formats.py. -->\n"
END = "<!-- End of the table. -->\n"


def page(text: str) -> str:
    """The page with the table as it should stand there. Raises ValueError where it has no place for one."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} must hold {BEGIN.strip()} and {END.strip()}")
    return before + begin + table() + end + after


def table() -> str:
    """A row for each format, in the order of their names."""
    rows = ["| format | what it is | kept | dropped | cut between lines |", "|---|---|---|---|---|"]
    rows += [_row(name, reader) for name, reader in sorted(formats().items())]
    return "\n".join(rows) + "\n"


def _row(name: str, reader: Any) -> str:
    cells = [f"`{name}`", reader.TITLE, reader.KEPT, reader.DROPPED, "yes" if reader.LINES else "no"]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")
