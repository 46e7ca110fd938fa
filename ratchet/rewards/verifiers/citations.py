"""The citation gate: every claim cites a document of the task, and the document says exactly that, there.

The deliverable is one JSON file, `claims.json` unless the task says otherwise:

    {"claims": [{"text": "Water boils at 100 °C at sea level.",
                 "citations": [{"source": "physics.md", "quote": "Water boils at 100 °C at sea level.",
                                "start": 120, "end": 155}]}]}

`source` names a document of the task (`payload["documents"]`, name to text). `quote` stands in it after
normalisation, as whole words and, unless the task relaxes it, whole sentences: a sentence cut short can say the
opposite of the whole. `start` and `end` (characters of the document as provided, both or neither) place it. Further
fields are refused, so that nothing is said outside a claim. Whether a quote supports its claim is a judge's question.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, ValidationError, model_validator

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.model import Contract
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.verifiers.comparing import Unread, normalised, read_json
from ratchet.rewards.verifiers.declared import declared
from ratchet.rewards.verifiers.quoting import document

SHOWN = 20
"""Failing citations that the evidence names."""


class Citation(Contract):
    """One quote with its source."""

    source: str = Field(min_length=1, description="Name of a document of the task.")
    quote: str = Field(min_length=1, description="What it says, word for word.")
    start: int | None = Field(default=None, ge=0, description="First character of the quote in the document.")
    end: int | None = Field(default=None, ge=1, description="One after its last character.")

    @model_validator(mode="after")
    def _placed_or_not(self) -> Citation:
        if (self.start is None) != (self.end is None):
            raise ValueError("start and end are given together or not at all")
        return self


class Claim(Contract):
    """One statement and what it rests on."""

    text: str = Field(min_length=1, description="The statement.")
    citations: tuple[Citation, ...] = Field(description="At least one; an empty list fails by name.")


class Claims(Contract):
    """The whole deliverable."""

    claims: tuple[Claim, ...] = Field(description="Every statement that is made.")


class CitationRules(Contract):
    """What a task declares under `verification.citations`; all of it has a default."""

    file: str = Field(default="claims.json", description="The delivered file.")
    min_claims: int = Field(default=1, ge=1, description="Fewest claims: nothing said is no answer.")
    min_words: int = Field(default=3, ge=1, description="Fewest words of a quote that is no whole sentence.")
    whole_sentences: bool = Field(default=True, description="A quote is made of whole sentences of its document.")
    placed: bool = Field(default=False, description="Every citation must say where its quote stands.")


def citations(attempt: Attempt) -> Scored | Invalid:
    """Every claim is covered; the evidence names each citation that is not, and how it fails."""
    rules = declared(attempt, "citations", CitationRules)
    documents: Mapping[str, str] = attempt.task.payload["documents"]
    text = attempt.deliverable.files.get(rules.file)
    if text is None:
        return Scored(value=0.0, evidence={"file": rules.file, "failed": ["no such file"]})
    try:
        made = Claims.model_validate(read_json(text)).claims
    except (Unread, ValidationError) as error:
        return Scored(value=0.0, evidence={"file": rules.file, "failed": [f"another format: {_first(error)}"]})
    failed = [] if len(made) >= rules.min_claims else [f"{len(made)} claims, fewer than {rules.min_claims}"]
    for number, claim in enumerate(made, 1):
        failed += [] if claim.citations else [f"claim {number}: no citation"]
        for index, citation in enumerate(claim.citations, 1):
            why = wrong_with(citation, documents, rules)
            failed += [f"claim {number} citation {index}: {why}"] if why else []
    evidence = {"claims": len(made), "citations": sum(len(claim.citations) for claim in made)}
    return Scored(value=float(not failed), evidence={**evidence, "failures": len(failed), "failed": failed[:SHOWN]})


def wrong_with(citation: Citation, documents: Mapping[str, str], rules: CitationRules) -> str | None:
    """Say how a citation fails, or return None: unknown source, other document, not verbatim, shifted, truncated."""
    if citation.source not in documents:
        return "unknown source"
    cited = document(documents[citation.source])
    passages = cited.passages(citation.quote)
    if not passages:
        others = (name for name, text in documents.items() if name != citation.source)
        other = next((name for name in others if document(documents[name]).passages(citation.quote)), None)
        return "not verbatim in any document" if other is None else f"other document: it stands in {other}"
    if citation.start is not None and citation.end is not None:
        if cited.position(citation.start, citation.end) != normalised(citation.quote):
            return "shifted: other words stand at its place"
    elif rules.placed:
        return "not placed"
    if not any(passage.whole_words for passage in passages):
        return "truncated inside a word"
    if any(passage.whole_sentences for passage in passages):
        return None
    if rules.whole_sentences:
        return "truncated inside a sentence"
    short = len(normalised(citation.quote).split()) < rules.min_words
    return f"fewer than {rules.min_words} words" if short else None


def _first(error: Unread | ValidationError) -> str:
    """Return the first mistake without what was written there: a policy wrote it."""
    if isinstance(error, Unread):
        return str(error)
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
