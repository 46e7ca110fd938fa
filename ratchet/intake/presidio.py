"""Personal data without a fixed shape (names, places, organisations) by Presidio, an optional extra.

It is asked for by name, comes on top of the shapes of `personal`, and is some thousand times as slow. Install
`ratchet[presidio]` and a spaCy model (`python -m spacy download en_core_web_sm`); only English text is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from ratchet.errors import IntakeError
from ratchet.intake import personal

MODEL = "en_core_web_sm"
SURE = 0.5
"""Score from which a finding counts."""
_BLOCK = 100_000
"""Characters that are analysed at a time; spaCy refuses a million."""
_KINDS = {"PERSON": "person", "LOCATION": "location", "NRP": "group"}


def among(texts: Sequence[bytes]) -> dict[int, Counter[str]]:
    """Like `personal.among`, with `person`, `location` and `group` beside its kinds.

    Raises:
        IntakeError: Presidio or its model is not installed.
    """
    engine = _engine()
    found = personal.among(texts)
    for at, text in enumerate(texts):
        values = {value for start in range(0, len(text), _BLOCK) for value in _values(engine, text, start)}
        if values:
            found[at] = found.get(at, Counter()) + Counter(kind for kind, _ in values)
    return found


def _values(engine: Any, text: bytes, start: int) -> list[tuple[str, str]]:
    block = text[start : start + _BLOCK].decode("utf-8", "ignore")
    results = engine.analyze(block, language="en", entities=list(_KINDS), score_threshold=SURE)
    return [(_KINDS[result.entity_type], block[result.start : result.end]) for result in results]


@cache
def _engine() -> Any:
    try:
        spacy, analyzer = import_module("spacy.util"), import_module("presidio_analyzer")
        nlp_engine = import_module("presidio_analyzer.nlp_engine")
    except ImportError:
        raise _missing("presidio-analyzer is not installed", "pip install 'ratchet[presidio]'") from None
    # Presidio would fetch a model that is missing from the network.
    if not spacy.is_package(MODEL):
        raise _missing(f"the spaCy model {MODEL} is not installed", f"python -m spacy download {MODEL}")
    models = [{"lang_code": "en", "model_name": MODEL}]
    configuration = {"nlp_engine_name": "spacy", "models": models}
    nlp = nlp_engine.NlpEngineProvider(nlp_configuration=configuration).create_engine()
    return analyzer.AnalyzerEngine(nlp_engine=nlp, supported_languages=["en"])


def _missing(what: str, remedy: str) -> IntakeError:
    return IntakeError("personal-engine", seen="presidio", rule=what, remedy=f"{remedy}, or leave the engine out")
