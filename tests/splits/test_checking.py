"""The contamination check: planted leaks of every layer are found, honest look-alikes are not, and the door holds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_tasks import AT, TEMPLATE, document, layers, made, made_with, repair_tasks, task

from ratchet.contracts.environment import Deliverable, Task
from ratchet.contracts.trajectory import (
    Agent,
    CallRecord,
    Observation,
    ObservationResult,
    RatchetExtra,
    Step,
    Trajectory,
)
from ratchet.errors import ContaminationError, IntegrityError, SplitError
from ratchet.splits import (
    ContaminationCertificate,
    SplitLock,
    check,
    checking,
    corpus_digest,
    document_of,
    open_certificate,
    save_certificate,
    waive,
)
from ratchet.splits.text import SHINGLE, Index, grams, hash_words, words
from ratchet.store import Store


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return list(repair_tasks(5))


@pytest.fixture(scope="module")
def locked(tasks: list[Task]) -> SplitLock:
    return made(tasks, 200, 60, 130)


@pytest.fixture(scope="module")
def heldout(tasks: list[Task], locked: SplitLock) -> list[Task]:
    names = {name for name, _ in locked.heldout}
    return [one for one in tasks if one.task_id in names]


@pytest.fixture(scope="module")
def train(tasks: list[Task], locked: SplitLock) -> list[Task]:
    names = {name for name, _ in locked.train}
    return [one for one in tasks if one.task_id in names]


def shingles(text: str) -> set[int]:
    return set(grams(hash_words(words(text)), SHINGLE).tolist())


def jaccard(left: str, right: str) -> float:
    one, other = shingles(left), shingles(right)
    return len(one & other) / len(one | other)


def near_copy(text: str, low: float, high: float, seed: int) -> str:
    """Replace words until the similarity of the whole texts falls into [low, high]."""
    shuffler, parts = random.Random(seed), text.split(" ")
    while not low <= (similarity := jaccard(text, " ".join(parts))) <= high:
        if similarity < low:
            parts = text.split(" ")
        parts[shuffler.randrange(len(parts))] = f"other{shuffler.random()}"
    return " ".join(parts)


def test_honest_corpus_of_train_tasks_passes(tasks: list[Task], locked: SplitLock, train: list[Task]) -> None:
    corpus = [
        document(
            f"{TEMPLATE}{one.prompt}\nOk.\n{one.payload['reference']}",
            identifiers=(one.repo, one.issue_id),
            name=one.task_id,
        )
        for one in train
    ]
    certificate = check(locked, tasks, corpus)
    assert certificate.passed, certificate.findings[:3]
    assert certificate.documents == len(train)
    assert {layer.layer: layer.compared > len(train) for layer in certificate.layers} == dict.fromkeys(
        ("identifiers", "exact", "near", "ast"), True
    )


def test_look_alikes_with_shared_boilerplate_are_under_one_percent(tasks: list[Task], locked: SplitLock) -> None:
    vocabulary = sorted({word for one in tasks for word in words(one.prompt)})
    corpus = []
    for number in range(400):
        shuffler = random.Random(number)
        own = " ".join(shuffler.choices(vocabulary, k=60))
        corpus.append(
            document(f"{TEMPLATE}The assertion `{own}` fails for it.\n\n```python\ndef f(x):\n    return x\n```\n")
        )
    certificate = check(locked, tasks, corpus)
    assert sum(layer.findings for layer in certificate.layers) < 4


def one_per_repo(tasks: list[Task], count: int) -> list[Task]:
    return list({one.repo: one for one in tasks}.values())[:count]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda text: text, {"exact", "near"}),
        (lambda text: text.replace("    ", "\t").replace(" ", "  \u00a0"), {"exact", "near"}),
        (lambda text: text.upper(), {"exact", "near"}),
        (lambda text: text.replace("a", "\uff41").replace("e", "e\u200b"), {"exact", "near"}),
        (lambda text: "something else entirely here " * 900 + text + " and so it goes on " * 900, {"near"}),
    ],
    ids=["verbatim", "whitespace", "case", "unicode", "wrapped"],
)
def test_leaked_prompt_is_found_in_every_dress(tasks, locked, heldout, change, expected) -> None:
    leaked = one_per_repo(heldout, 10)
    certificate = check(locked, tasks, [document(change(one.prompt), name=one.task_id) for one in leaked])
    for one in leaked:
        found = {item.layer for item in certificate.findings if item.task_id == item.document == one.task_id}
        assert expected <= found
    assert not certificate.passed


def test_near_copies_at_the_threshold_are_all_found_with_both_texts(tasks, locked, heldout) -> None:
    leaked = one_per_repo(heldout, 60)
    for start in range(0, len(leaked), 15):
        part = leaked[start : start + 15]
        copies = {one.task_id: near_copy(one.prompt, 0.80, 0.85, start) for one in part}
        certificate = check(locked, tasks, [document(text, name=name) for name, text in copies.items()])
        for one in part:
            mine = [
                item
                for item in certificate.findings
                if item.task_id == item.document == one.task_id and item.layer == "near"
            ]
            assert mine, one.task_id
            assert "word 5-grams contained" in mine[0].rule
            assert mine[0].task_text.split("] ")[-1][:20] in one.prompt
            assert mine[0].document_text.split("] ")[-1][:20] in copies[one.task_id]


def test_train_task_that_was_made_from_a_heldout_prompt_is_found(tasks, locked, train, heldout) -> None:
    """A lock never lets this happen, so the planted lock pins the leaking task."""
    leak = train[0].model_copy(update={"prompt": heldout[0].prompt})
    changed = [leak if one.task_id == leak.task_id else one for one in tasks]
    with pytest.raises(SplitError, match="changed train task"):
        check(locked, changed, [])
    pinned = tuple(sorted((name, leak.digest if name == leak.task_id else value) for name, value in locked.train))
    from ratchet.splits.locking import root_of

    root = root_of({"train": pinned, "validation": locked.validation, "heldout": locked.heldout}, locked.left_out)
    fields = {name: getattr(locked, name) for name in SplitLock.model_fields}
    certificate = check(SplitLock.issue(**{**fields, "train": pinned, "root": root}), changed, [])
    assert {"exact", "near", "ast"} <= layers(certificate, heldout[0].task_id)
    assert certificate.findings[0].source == "split train"


CLONED = """
def search(items, wanted):
    best, place = None, -1
    for number, item in enumerate(items):
        if wanted in item.names and (best is None or item.score > best):
            best, place = item.score, number
    return place
"""
RENAMED = CLONED.replace("search", "look").replace("items", "things").replace("item", "thing").replace("best", "top")


def test_ast_clone_with_renames_is_found_wherever_the_code_stands() -> None:
    pool = [task(f"t{number}", f"fix the loop number {number} " * 4, source=f"x = {number}") for number in range(6)]
    pool.append(task("target", "the search is wrong", source=CLONED))
    locked = next(made for made in (made_with(pool, seed) for seed in range(20)) if ("target" in dict(made.heldout)))
    for leak in (
        document("nothing to see", RENAMED),
        document(f"call it so:\n```\n{RENAMED}\n```"),
        document("1 | # a file\n" + "\n".join(f"{at} | {line}" for at, line in enumerate(RENAMED.splitlines(), 2))),
    ):
        certificate = check(locked, pool, [leak])
        assert layers(certificate, "target") == {"ast"}
        (finding,) = certificate.findings
        assert "def search" in finding.task_text
        assert "def look" in finding.document_text
    assert check(locked, pool, [document("else", RENAMED.replace(".score", ".weight"))]).passed


@given(
    st.lists(st.frozensets(st.integers(0, 40), max_size=15), max_size=12),
    st.frozensets(st.integers(0, 45), max_size=20),
)
@settings(deadline=None)
def test_index_counts_what_brute_force_counts(sets: list[frozenset[int]], query: frozenset[int]) -> None:
    index = Index([np.array(sorted(one), dtype=np.uint64) for one in sets])
    found, shared = index.shared(np.array(sorted(query), dtype=np.uint64))
    expected = {number: len(one & query) for number, one in enumerate(sets) if one & query}
    assert dict(zip(found.tolist(), shared.tolist(), strict=True)) == expected


def test_near_layer_agrees_with_brute_force_over_all_pairs(tasks, locked, heldout, train) -> None:
    """Documents mixed from halves of real prompts, compared with every protected prompt, one by one, as plain sets."""
    common = {int(one, 16) for one in locked.boilerplate.shingles}
    shuffler = random.Random(3)
    corpus = []
    for number in range(30):
        text = shuffler.choice(heldout if number % 3 == 0 else train).prompt
        keep = shuffler.uniform(0.2, 1.0)
        corpus.append(document(text[: int(len(text) * keep)] + " " + shuffler.choice(train).prompt, name=f"d{number}"))
    validation = {name for name, _ in locked.validation}
    protected = [*heldout, *(one for one in tasks if one.task_id in validation)]
    expected = 0
    for one in corpus:
        own = shingles(one.text) - common
        for other in protected:
            theirs = shingles(other.prompt) - common
            both = len(theirs & own)
            expected += bool(both) and both >= 0.5 * len(theirs) and (both >= 5 or both == len(theirs))
    certificate = check(locked, tasks, corpus)
    assert next(layer.findings for layer in certificate.layers if layer.layer == "near") == expected > 5


def test_processes_give_the_same_certificate(tasks, locked, heldout, train, monkeypatch: pytest.MonkeyPatch) -> None:
    leaks = [document(one.prompt, name=f"leak {number}") for number, one in enumerate(heldout[:40])]
    honest = [document(one.prompt, name=f"honest {number}") for number, one in enumerate(train[:60])]
    corpus = [one for pair in zip(honest, leaks, strict=False) for one in pair] + honest[40:]
    alone = check(locked, tasks, corpus)
    monkeypatch.setattr(checking, "LARGE", 20)
    monkeypatch.setattr(checking, "_CHUNK", 7)
    together = check(locked, tasks, iter(corpus), workers=2)
    assert together == alone
    assert together.digest == alone.digest
    assert sum(layer.findings for layer in alone.layers) > 100


def test_door_opens_only_for_a_passed_certificate_of_this_lock_and_corpus(tasks, locked, heldout, train) -> None:
    clean = [document(train[0].prompt)]
    passed = check(locked, tasks, clean)
    passed.require(locked.digest, corpus_digest(clean))
    with pytest.raises(ContaminationError, match="for the split lock"):
        passed.require("0" * 64, corpus_digest(clean))
    with pytest.raises(ContaminationError, match="for the corpus"):
        passed.require(locked.digest, corpus_digest([*clean, document("one more")]))
    leaking = [*clean, document(heldout[0].prompt, name="leak.json")]
    failed = check(locked, tasks, leaking)
    with pytest.raises(ContaminationError, match=r"is \d+: open findings must be 0.*'leak.json'"):
        failed.require(locked.digest, corpus_digest(leaking))


def test_corpus_digest_ignores_order_but_not_content() -> None:
    one, other = document("a"), document("b")
    assert corpus_digest([one, other]) == corpus_digest([other, one]) != corpus_digest([one, one])


def test_waiver_needs_a_person_and_a_reason_and_opens_only_its_finding(named: tuple[SplitLock, list[Task]]) -> None:
    corpus = [document("from HumanEval/1"), document("see owner/tool#12")]
    certificate = check(*named, corpus)
    first, second = (finding.finding_id for finding in certificate.findings)
    for by, reason, finding in (("", "known", first), ("ann", " ", first), ("ann", "known", "nothing")):
        with pytest.raises(ContaminationError, match="names an open finding"):
            waive(certificate, finding, by=by, reason=reason, at=AT)
    once = waive(certificate, first, by="ann", reason="a model card", at=AT)
    assert not once.passed
    with pytest.raises(ContaminationError, match="is 1"):
        once.require(named[0].digest, corpus_digest(corpus))
    with pytest.raises(ContaminationError, match="names an open finding"):
        waive(once, first, by="ann", reason="again", at=AT)
    twice = waive(once, second, by="bob", reason="a changelog", at=AT)
    twice.require(named[0].digest, corpus_digest(corpus))
    assert len({certificate.digest, once.digest, twice.digest}) == 3
    assert [waiver.reason for waiver in twice.waivers] == ["a model card", "a changelog"]


def test_certificate_with_more_findings_than_it_keeps_cannot_be_waived_open(named) -> None:
    locked, pool = named
    certificate = check(
        locked, pool, [document(f"HumanEval/1 log {number}", name=f"d{number}") for number in range(103)]
    )
    for finding in certificate.findings:
        certificate = waive(certificate, finding.finding_id, by="ann", reason="known", at=AT)
    assert certificate.open_findings == 3
    with pytest.raises(ContaminationError, match="there were more"):
        certificate.require(locked.digest, certificate.corpus_digest)


def test_certificate_cannot_be_made_by_hand_or_changed_in_the_store(named, tmp_path) -> None:
    with pytest.raises(IntegrityError, match=r"only by ratchet\.splits"):
        ContaminationCertificate(lock_digest="x")
    certificate = check(*named, [document("from HumanEval/1")])
    store = Store(tmp_path)
    assert save_certificate(store, certificate, "c.json")
    assert open_certificate(store, "c.json") == certificate
    path = tmp_path / "c.json"
    path.write_bytes(path.read_bytes().replace(b'"findings":1', b'"findings":0'))
    with pytest.raises(IntegrityError):
        open_certificate(store, "c.json")


def test_trajectory_as_document_shows_all_that_a_trainer_reads(named) -> None:
    call = CallRecord(tool_call_id="c", function_name="edit", arguments={"body": {"source": CLONED}})
    steps = [
        Step(step_id=1, source="user", message="please"),
        Step(
            step_id=2,
            source="agent",
            message="",
            reasoning_content="thinking of HumanEval/1",
            tool_calls=[call],
            observation=Observation(results=[ObservationResult(source_call_id="c", content="done it")]),
        ),
    ]
    extra = RatchetExtra(
        tenant="t",
        grant_id="g",
        task_id="x/1",
        repo="x",
        issue_id="x#1",
        deliverable=Deliverable(submitted=True, files={"a.py": RENAMED}),
    )
    found = document_of(
        Trajectory(trajectory_id="id", agent=Agent(name="a", version="1"), steps=steps).with_ratchet(extra), "logs"
    )
    assert found.name == "id"
    assert all(part in found.text for part in ("please", "thinking of", "done it", "best, place"))
    assert found.code == (CLONED, RENAMED)
    assert found.identifiers == ("x/1", "x", "x#1")
    assert not check(*named, [found]).passed
