"""The Spanish catalogue is complete: every English sentence that can reach the page has a Spanish one, read off the
code that writes it, and a whole page leaves nothing in English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_world import BODY, CURVES, body

from ratchet.evaluation import compliance, tables
from ratchet.evaluation.audits import EPISODE
from ratchet.evaluation.html import CONTENTS, STATES, article
from ratchet.evaluation.language import FIELD
from ratchet.evaluation.origins import INPUTS
from ratchet.evaluation.report import FIGURES, MARKS, PAIRS
from ratchet.evaluation.spanish import PAGE, spanish
from ratchet.evaluation.spanish_reasons import DETECTORS, JUDGES
from ratchet.evaluation.spanish_reasons import FIGURES as WORDS
from ratchet.evaluation.spanish_reasons import RULES as REASONS
from ratchet.loop.deciding import CURVES as QUANTITIES
from ratchet.release.rules import RULES
from ratchet.release.states import State

DOMAIN = Path(__file__).resolve().parents[2] / "ratchet"
PAGES = ("html", "plots", "tables", "compliance", "judged", "origins")
SAYING = {"html", "say", "section", "figure", "table", "tag", "folded"}
"""Calls whose strings are read on the page."""
NO_SENTENCE = re.compile(r"[a-z0-9_.:/=-]*|[^A-Za-z]*")
"""Identifiers, and pieces of punctuation between placeholders."""


def template(node: ast.expr) -> str | None:
    """A string as the catalogue has it, with `{}` for what is filled in; None for what is no string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        else:
            parts.append("'{}'" if isinstance(part, ast.FormattedValue) and part.conversion == ord("r") else "{}")
    return "".join(parts)


def strings(node: ast.AST) -> Iterator[str]:
    """Every string below a node; of an f-string the whole, then those in what it fills in."""
    found = template(node) if isinstance(node, ast.expr) else None
    if found is not None:
        yield found
    inside = (
        [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        if isinstance(node, ast.JoinedStr)
        else ast.iter_child_nodes(node)
    )
    for child in inside:
        yield from strings(child)


def parsed(module: str) -> ast.Module:
    return ast.parse((DOMAIN / module).read_text(encoding="utf-8"))


def sentences(module: str, within: set[str] | None = None) -> set[str]:
    """What the functions of a module write that a person reads: docstrings, names and errors are left out."""
    found: set[str] = set()
    for function in ast.walk(parsed(module)):
        if not isinstance(function, ast.FunctionDef) or (within is not None and function.name not in within):
            continue
        for statement in function.body[1 if ast.get_docstring(function) else 0 :]:
            for node in ast.walk(statement):
                if isinstance(node, ast.Raise):
                    break
            else:
                found |= set(strings(statement))
    return {one for one in found if not NO_SENTENCE.fullmatch(FIELD.sub("", one.replace("{}", "")))}


def not_computable(module: str) -> set[str]:
    """The reasons of a module for figures that cannot be computed."""
    calls = [node for node in ast.walk(parsed(module)) if isinstance(node, ast.Call)]
    made = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "NotComputable"]
    return {text for node in made for text in strings(node) if text != "reason"}


def known() -> str:
    """All keys, one a line, with bare placeholders."""
    return "\n".join(FIELD.sub("{}", key) for key in {**REASONS, **WORDS, **DETECTORS, **JUDGES, **PAGE})


KNOWN = known()


def missing(found: set[str]) -> set[str]:
    """Sentences that are no key and no part of one: `; waived: {}` is a part of a longer one."""
    # A placeholder that touches a word holds a part that may be empty.
    ways = {one: (one, re.sub(r"(?<=\w)\{\}", "", one)) for one in found}
    return {
        one for one, told in ways.items() if not any(way.removeprefix("{}").removesuffix("{}").strip() in KNOWN
                                                     for way in told)
    }  # fmt: skip


def test_it_reads_sentences_off_the_code() -> None:
    found = sentences("release/rules.py")
    assert "paired difference {}, lower bound {}; it must exceed {}" in found
    assert "'{}' is {} ({} rows)" in found
    assert missing({"a sentence that {} wrote"}) == {"a sentence that {} wrote"}


@pytest.mark.parametrize("module", ["release/rules.py", "rewards/detections.py"])
def test_every_reason_of_a_rule_and_a_detector_has_a_spanish_one(module: str) -> None:
    assert missing(sentences(module)) == set()


@pytest.mark.parametrize(
    ("module", "within"),
    [
        ("rewards/audit.py", {"_failures", "audit_changes"}),
        ("rewards/policy_audit.py", {"_figures"}),
        ("rewards/calibration/calibrate.py", {"_failures"}),
    ],
)
def test_every_finding_of_an_audit_has_a_spanish_one(module: str, within: set[str]) -> None:
    assert missing(sentences(module, within)) == set()


MODULES = sorted(
    str(path.relative_to(DOMAIN))
    for folder in ("evaluation", "rewards", "loop")
    for path in (DOMAIN / folder).rglob("*.py")
    if "NotComputable(" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", MODULES)
def test_every_figure_that_cannot_be_computed_has_spanish_words(module: str) -> None:
    assert missing(not_computable(module)) == set()


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_the_page_says_has_a_spanish_one(page: str) -> None:
    calls = [node for node in ast.walk(parsed(f"evaluation/{page}.py")) if isinstance(node, ast.Call)]
    said = {
        text
        for node in calls
        if (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in SAYING
        for argument in node.args
        if isinstance(argument, ast.Constant | ast.JoinedStr)
        for text in [template(argument)]
        if text and " " in text
    }
    assert said
    assert missing({one for one in said if not one.startswith("<")}) == set()


def test_every_label_has_a_spanish_one() -> None:
    labels = {
        *(label for label, _ in FIGURES),
        *(label for label, _ in tables.COSTS),
        *tables.PRICES.values(),
        *compliance.DETECTORS.values(),
        *INPUTS.values(),
        *MARKS.values(),
        *PAIRS,
        *EPISODE,
        *(title for _, title in CONTENTS),
        *STATES.values(),
        *(rule.__name__.replace("_", " ") for rule in RULES),
        *(str(state) for state in State),
        *(quantity.replace("_", " ") for quantity in QUANTITIES),
    }
    language = spanish()
    assert {label for label in labels if not language.knows(label)} == set()


def test_every_translation_keeps_its_placeholders_and_is_not_english() -> None:
    catalogue = {**REASONS, **WORDS, **DETECTORS, **JUDGES, **PAGE}
    assert {key for key, said in catalogue.items() if set(FIELD.findall(key)) != set(FIELD.findall(said))} == set()
    same = {key for key, said in catalogue.items() if key == said and " " in FIELD.sub("", key).strip(" :/,")}
    assert same == {"p (Holm)"}


@pytest.mark.parametrize("decided", [True, False], ids=["decided", "undecided"])
def test_a_whole_page_leaves_nothing_in_english(decided: bool) -> None:
    language = spanish()
    shown = article(BODY if decided else body(decided=False), CURVES, language)
    assert language.missing == set()
    assert '<span lang="en">' not in shown
