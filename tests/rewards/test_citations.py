"""The citation gate: honest citations pass however they are typeset; each way to forge one is caught by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_world import SOLUTION, attempt, task_of

from ratchet.contracts.environment import Deliverable
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.compose import scored_by
from ratchet.rewards.verifiers import VERIFIERS

TRIAL = (
    "Results of the trial\n\nThe drug lowers blood pressure in mice, but it does not\nlower it in humans. "
    "Dr. Kiefer's team saw “no effect” in 3.5 % of cases.\n- Nausea was re-\nported twice.\n"
)
REVIEW = "Earlier reviews disagree. Blood pressure was lowered in humans by 2 mmHg! Was it chance?\n"
DOCUMENTS = {"trial.md": TRIAL, "review.md": REVIEW}
HUMANS = "The drug lowers blood pressure in mice, but it does not lower it in humans."


def judged(*citations: dict[str, Any], **rules: Any) -> Scored:
    return scored(
        json.dumps({"claims": [{"text": "It does not work in humans.", "citations": list(citations)}]}), rules
    )


def scored(text: str, rules: dict[str, Any] | None = None) -> Scored:
    task = task_of({SOLUTION: ""}, documents=DOCUMENTS, verification={"citations": rules or {}})
    work = Deliverable(submitted=True, files={"claims.json": text})
    score = scored_by("verifier", "citations", VERIFIERS["citations"], attempt(work, task))
    assert not isinstance(score, Invalid), score
    return score


def cite(quote: str, source: str = "trial.md", **place: int) -> dict[str, Any]:
    return {"source": source, "quote": quote, **place}


@pytest.mark.parametrize(
    "quote",
    [
        HUMANS,
        HUMANS.upper().replace(" ", "\n  "),
        HUMANS.rstrip("."),
        'Dr. Kiefer\'s team saw "no effect" in 3.5 % of cases.',
        "Dr. Kiefer’s team saw «no effect» in 3.5\u00a0% of cases",
        "Nausea was reported twice.",
        "Results of the trial",
        f"{HUMANS} Dr. Kiefer's team saw 'no effect' in 3.5 % of cases.".replace("'no effect'", '"no effect"'),
    ],
)
def test_a_quote_of_whole_sentences_passes_however_it_is_typeset(quote: str) -> None:
    score = judged(cite(quote))
    assert (score.value, score.evidence["failed"]) == (1.0, [])


@pytest.mark.parametrize(
    ("citation", "why"),
    [
        (cite(HUMANS, "paper.md"), "unknown source"),
        (cite("The drug cures everyone at once."), "not verbatim in any document"),
        (cite("The drug reduces blood pressure in mice, but it does not lower it in humans."), "not verbatim"),
        (cite("The drug lowers blood pressure in mice, but it does lower it in humans."), "not verbatim"),
        (cite("The drug lowers blood pressure … in humans."), "not verbatim"),
        (cite("Blood pressure was lowered in humans by 2 mmHg!"), "other document: it stands in review.md"),
        (cite("The drug lowers blood pressure in mice"), "truncated inside a sentence"),
        (cite("lower it in humans."), "truncated inside a sentence"),
        (cite("he drug lowers blood pressure in mice, but it does not lower it in humans."), "inside a word"),
        (cite('Dr. Kiefer\'s team saw "no effect" in 3'), "truncated"),
        (cite("Dr."), "truncated inside a sentence"),
        (cite("..."), "not verbatim"),
        (cite("\u200b "), "not verbatim"),
    ],
)
def test_a_forged_cross_document_paraphrased_or_truncated_citation_is_caught_by_name(
    citation: dict[str, Any], why: str
) -> None:
    score = judged(cite(HUMANS), citation)
    assert score.value == 0.0
    assert len(score.evidence["failed"]) == 1
    assert score.evidence["failed"][0].startswith("claim 1 citation 2: ")
    assert why in score.evidence["failed"][0]


def test_a_shifted_citation_is_caught_and_the_right_place_passes() -> None:
    start = TRIAL.index("The drug")
    end = TRIAL.index("humans.") + len("humans.")
    assert judged(cite(HUMANS, start=start, end=end), placed=True).value == 1
    for moved in (-1, 1, 7, 40, 10_000):
        score = judged(cite(HUMANS, start=start + moved, end=end + moved))
        assert score.value == 0, moved
        assert "shifted" in score.evidence["failed"][0]
    assert "not placed" in judged(cite(HUMANS), placed=True).evidence["failed"][0]


def test_a_task_may_allow_parts_of_sentences_but_no_single_words() -> None:
    assert judged(cite("blood pressure in mice"), whole_sentences=False).value == 1
    assert "fewer than 3 words" in judged(cite("in mice"), whole_sentences=False).evidence["failed"][0]
    assert "inside a word" in judged(cite("lood pressure in mice"), whole_sentences=False).evidence["failed"][0]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "no claims", '{"claims": []}', '{"claims": [{"text": "a", "citations": []}]}',
        '{"claims": [{"text": "a"}]}', '{"claims": [], "summary": "said outside a claim"}',
        json.dumps({"claims": [{"text": "a", "citations": [cite(HUMANS, start=0)]}]}),
        json.dumps({"claims": [{"text": "a", "citations": [cite(HUMANS) | {"note": "x"}]}]}),
        json.dumps({"claims": [{"text": "a", "citations": [cite(HUMANS, start=5, end=-5)]}]}), "[" * 99_999,
    ],
)  # fmt: skip
def test_what_has_another_format_or_says_nothing_earns_nothing(text: str) -> None:
    score = scored(text)
    assert score.value == 0
    assert score.evidence["failed"]


def test_a_claim_without_a_citation_is_named_beside_a_covered_one() -> None:
    claims = [{"text": "one", "citations": [cite(HUMANS)]}, {"text": "two", "citations": []}]
    assert scored(json.dumps({"claims": claims})).evidence["failed"] == ["claim 2: no citation"]


@given(st.integers(0, len(TRIAL)), st.integers(0, len(TRIAL)))
def test_no_cut_of_a_sentence_passes(start: int, end: int) -> None:
    """Whatever is cut out of the document passes only where it is made of whole sentences."""
    quote = TRIAL[min(start, end) : max(start, end)]
    if quote.strip() and judged(cite(quote)).value:
        kept = " ".join(quote.replace("re-\nported", "reported").split()).casefold()
        whole = [
            "results of the trial",
            HUMANS.casefold().rstrip("."),
            "dr. kiefer's team saw “no effect” in 3.5 % of cases",
            "nausea was reported twice",
        ]
        assert any(sentence in kept for sentence in whole)


@given(st.text(max_size=40))
def test_no_quote_makes_the_gate_fail_itself(quote: str) -> None:
    assert judged(cite(quote)).value in (0.0, 1.0)
