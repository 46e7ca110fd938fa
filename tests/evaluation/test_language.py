"""Sentences said in another language by their pattern: figures written anew, names left alone, gaps told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.evaluation import format as show
from ratchet.evaluation.language import ENGLISH, NARROW_SPACE, Language

ES = {
    "p95 latency": "latencia p95",
    "{what} is {n1} times the incumbent's; at most {n2}": "{what}: {n1} veces la del titular; como máximo {n2}",
    "'{name}' {n} (p {p})": "«{name}» {n} (p {p})",
    "segment regressed: {segments}": "segmento que empeora: {segments}",
    "{name1} over {name2}": "{name1} sobre {name2}",
    "undecided: {reason}": "sin decidir: {reason}",
}


def spanish() -> Language:
    return Language("es", "Español", ES)


@pytest.mark.parametrize(
    ("english", "said"),
    [
        ("57.2 % [52.1, 62.3]", "57,2 % [52,1; 62,3]"),
        ("+16.0 points [+11.3, +20.7]", "+16,0 puntos [+11,3; +20,7]"),
        ("1,600.00 USD", "1600,00 USD"),
        ("12,345,678", f"12{NARROW_SPACE}345{NARROW_SPACE}678"),
        ("2,187", "2187"),
        ("< 0.0001", "< 0,0001"),
        ("32.4 % / 9.4 % / 1.5 %", "32,4 % / 9,4 % / 1,5 %"),
        ("0.5, 1.5", "0,5; 1,5"),
        ("-3", "-3"),
        ("123.4 ms", "123,4 ms"),
    ],
)
def test_figures_have_a_decimal_comma_and_bounds_that_it_does_not_blur(english: str, said: str) -> None:
    language = spanish()
    assert language.say(english) == said
    assert language.missing == set()


def test_a_sentence_is_said_with_its_figures_and_its_parts() -> None:
    language = spanish()
    said = language.say("p95 latency is 0.20 times the incumbent's; at most 1.50")
    assert said == "latencia p95: 0,20 veces la del titular; como máximo 1,50"
    listed = "segment regressed: 'v1.5' -12.0 points (p 0.01), 'off by one' -3.0 points (p 0.04)"
    assert language.say(listed) == (
        "segmento que empeora: «v1.5» -12,0 puntos (p 0,01), «off by one» -3,0 puntos (p 0,04)"
    )


def test_what_others_named_is_never_translated() -> None:
    assert spanish().say("p95 latency over v1.5") == "p95 latency sobre v1.5"


def test_what_the_catalogue_lacks_stays_english_is_marked_and_is_told() -> None:
    language = spanish()
    assert language.html("an <odd> thing") == '<span lang="en">an &lt;odd&gt; thing</span>'
    assert language.say("undecided: nobody knows this") == "sin decidir: nobody knows this"
    assert language.missing == {"an <odd> thing", "nobody knows this"}


def test_words_that_an_environment_chose_are_said_where_they_can_be_and_else_left_alone() -> None:
    language = spanish()
    assert language.perhaps("undecided: p95 latency") == "sin decidir: latencia p95"
    assert language.perhaps("undecided: <who> knows") == "undecided: &lt;who&gt; knows"
    assert ENGLISH.perhaps("undecided: p95 latency") == "undecided: p95 latency"
    assert language.missing == set()


def test_english_is_said_as_it_stands() -> None:
    assert ENGLISH.say("57.2 %, whatever") == "57.2 %, whatever"
    assert ENGLISH.html("a < b") == "a &lt; b"
    assert ENGLISH.html("57.2 % [52.1, 62.3]") == "57.2 % [52.1,&nbsp;62.3]"


@given(st.floats(-1e9, 1e9, allow_nan=False))
def test_every_amount_reads_back_as_the_same_number(amount: float) -> None:
    english = show.money(amount, "USD")
    said = spanish().say(english)
    assert float(said.removesuffix(" USD").replace(NARROW_SPACE, "").replace(",", ".")) == float(
        english.removesuffix(" USD").replace(",", "")
    )
