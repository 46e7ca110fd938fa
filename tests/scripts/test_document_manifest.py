"""The page on the manifest says what the models check, no more and no less."""

from __future__ import annotations

import runpy
from pathlib import Path

from ratchet.contracts.manifest import Manifest, MethodSection

ROOT = Path(__file__).resolve().parents[2]


def page() -> str:
    made: str = runpy.run_path(str(ROOT / "scripts" / "document_manifest.py"))["page"]()
    return made


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "manifest.md").read_text(encoding="utf-8") == page(), (
        "run python scripts/document_manifest.py"
    )


def test_every_field_is_described() -> None:
    text = page()
    for model in (Manifest, MethodSection):
        for name, field in model.model_fields.items():
            assert field.description
            assert f"| `{name}` |" in text
