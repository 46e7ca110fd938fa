"""The page on the formats says what the readers say and do: its table, its codes, its example."""

from __future__ import annotations

import json
import re
import runpy
import types
from pathlib import Path

import pytest

from ratchet.intake.cutting import Cutter
from ratchet.intake.formats import formats, named
from ratchet.intake.records import Record, Rejected
from ratchet.intake.validate import trajectory_of

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "document_formats.py"))
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
PAGES = PAGE + (ROOT / "docs" / "intake.md").read_text(encoding="utf-8")
SAMPLES = sorted((ROOT / "tests" / "intake" / "samples").glob("*/*"))
CODE = re.compile(r"`([a-z]+(?:_[a-z0-9]+)+)`")


def test_the_table_is_up_to_date() -> None:
    assert SCRIPT["page"](PAGE) == PAGE, "run python scripts/document_formats.py"


def test_every_format_says_what_it_is_what_it_keeps_and_what_it_drops() -> None:
    for name, reader in formats().items():
        assert f"| `{name}` | {reader.TITLE} | " in SCRIPT["table"]()
        assert isinstance(reader.LINES, bool)
        assert reader.KEPT
        assert reader.DROPPED


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold"):
        SCRIPT["page"]("# Formats\n")


def test_every_code_that_a_sample_shows_is_explained() -> None:
    seen = set()
    for path in SAMPLES:
        for piece in Cutter(path, path.name, path.parent.name).pieces():
            for item in named(path.parent.name).read(piece.data(), path.name) if piece.format else ():
                seen |= {item.code} if isinstance(item, Rejected) else set(item.anomalies)
    assert {code for code in seen if f"`{code}`" not in PAGES} == set()


def test_every_code_that_is_explained_exists() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ratchet" / "intake").rglob("*.py"))
    rows = [
        line for line in PAGE.partition("## Quirks")[2].partition("## Another format")[0].splitlines() if "|" in line
    ]
    codes = {code for line in rows for code in CODE.findall(line)} - set(formats())
    fields = {"is_copied_context", "tool_call_ids", "llm_call_count", "arguments_text", "original_call_id"}
    assert {code for code in codes - fields if f'"{code}"' not in source} == set()


def test_the_example_of_a_reader_works() -> None:
    code = PAGE.partition("```python\n")[2].partition("```")[0]
    example = types.ModuleType("acme")
    exec(compile(code, "docs/formats.md", "exec"), example.__dict__)
    turns = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "run", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    data = b"".join(json.dumps({"acme_log": 3, "id": "a1", "turns": given}).encode() + b"\n" for given in (turns, []))
    assert example.sniff(data, "x.jsonl")
    good, bad = example.read(data, "x.jsonl")
    assert isinstance(good, Record)
    assert trajectory_of(good, tenant="acme", grant_id="g").steps[1].observation.results[0].content == "done"
    assert (bad.code, bad.number) == ("no_messages", 1)
    assert not any(reader.sniff(data, "x.jsonl") for reader in formats().values())
