"""Code of other languages: clones of a function have its digest, other functions do not, wherever the code stands."""

from __future__ import annotations

import re

import pytest
from code_samples import SAMPLES, Sample
from split_tasks import document, layers, made_with, task

from ratchet.splits import check, grammars
from ratchet.splits.code import blocks
from ratchet.splits.features import read_functions
from ratchet.splits.tokens import token_functions


def digests(source: str) -> set[str]:
    return {one.digest for part in read_functions(source) for one in part.found}


def renamed(sample: Sample) -> str:
    source = sample.source
    for old, new in sample.renames:
        source = re.sub(rf"\b{old}\b", new, source)
    assert source != sample.source
    return source


CLONES = [(name, edit) for name, sample in SAMPLES.items() for edit in sample.clones]
OTHERS = [(name, edit) for name, sample in SAMPLES.items() for edit in sample.others]


@pytest.mark.parametrize("name", SAMPLES)
def test_clone_with_other_names_has_the_same_digest(name: str) -> None:
    assert digests(renamed(SAMPLES[name])) & digests(SAMPLES[name].source)


@pytest.mark.parametrize(("name", "edit"), CLONES)
def test_what_a_cloner_changes_freely_does_not_count(name: str, edit: tuple[str, str]) -> None:
    clone = SAMPLES[name].source.replace(*edit)
    assert clone != SAMPLES[name].source
    assert digests(clone) & digests(SAMPLES[name].source)


@pytest.mark.parametrize(("name", "edit"), OTHERS)
def test_another_function_has_another_digest(name: str, edit: tuple[str, str]) -> None:
    other = SAMPLES[name].source.replace(*edit)
    assert other != SAMPLES[name].source
    assert digests(other)
    assert digests(other).isdisjoint(digests(SAMPLES[name].source))


@pytest.mark.parametrize("name", SAMPLES)
def test_clone_is_found_as_a_leak_wherever_it_stands(name: str) -> None:
    sample, clone = SAMPLES[name], renamed(SAMPLES[name])
    pool = [task(f"t{number}", f"fix the loop number {number} " * 4, source=f"x = {number}") for number in range(6)]
    pool.append(task("target", "the search is wrong", source=sample.source))
    locked = next(one for one in (made_with(pool, seed) for seed in range(20)) if "target" in dict(one.heldout))
    numbered = "\n".join(f"{at:3} | {line}" for at, line in enumerate(clone.strip().splitlines(), 1))
    for leak in (
        document("nothing to see", clone),
        document(f"call it so:\n```\n{clone}\n```"),
        document(f"I don't know {{why}}, look:\n{clone}\nand more of it"),
        document(numbered),
    ):
        certificate = check(locked, pool, [leak])
        assert layers(certificate, "target") == {"ast"}, leak.text


@pytest.mark.parametrize(
    "source",
    [
        "function add(a, b) { return a + b; }",
        "public int size() { return this.items.size(); }",
        "func (s *Store) Len() int { return len(s.entries) }",
        "fn id(x: u32) -> u32 { x }",
    ],
)
def test_small_functions_are_ignored(source: str) -> None:
    (read,) = read_functions(source)
    assert read.parsed
    assert read.found == ()


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "call", "arguments": {"a": [1, 2], "b": "(x) {y}"}}',
        "Use {placeholder} (see the manual) and if (x) { stop }",
        "for (;;) {",
        "f(" * 2_000 + "{" * 2_000,
        "{" * 5_000 + "}" * 5_000,
    ],
)
def test_braces_that_are_no_code_give_no_function(text: str) -> None:
    assert not digests(text)
    assert all(not digests(block) for block in blocks(text))


def test_deeply_nested_code_is_read_without_recursion() -> None:
    source = SAMPLES["javascript"].source.replace("-1;", "-1;" + "if (x) {" * 3_000 + "}" * 3_000)
    assert digests(source)


def test_missing_grammar_is_counted_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(grammars.LANGUAGES, "go", ("tree_sitter_of_nobody", "language"))
    grammars.grammar.cache_clear()
    token_functions.cache_clear()
    pool = [task(f"t{number}", f"fix the loop number {number} " * 4) for number in range(6)]
    certificate = check(made_with(pool, 0), pool, [document("see", SAMPLES["go"].source)])
    grammars.grammar.cache_clear()
    token_functions.cache_clear()
    assert next(layer.unread for layer in certificate.layers if layer.layer == "ast") == 1
