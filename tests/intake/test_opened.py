"""Opened pieces: what hides a text is taken off, layer by layer, whatever the piece is."""

import base64
import json
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.intake.opened import LAYERS, opened

WORD = "tiny-needle-0123456789"


def coded(word):
    return "".join(f"\\u{ord(sign):04x}" for sign in word)


@pytest.mark.parametrize("times", range(1, LAYERS + 1))
def test_json_in_strings_is_opened_to_any_depth_with_names_beside_values(times):
    text = json.dumps({"api_key": f'é "{WORD}"\n'})
    for _ in range(times - 1):
        text = json.dumps({"arguments": text})
    assert f'"api_key": "é "{WORD}"\n"'.encode() in opened(text.encode())


@pytest.mark.parametrize(
    "raw",
    [
        coded(WORD),
        '{"a": "' + coded(WORD) + '"}',
        '{"a": "' + coded(WORD[:4]) + WORD[4:] + '"}',
        json.dumps({"a": '{"b": "' + coded(WORD) + '"}'}),
        '{"a": "x\\n' + WORD + '\\n"}',
        '{"' + coded(WORD) + '": 1}',
        WORD + "\\",
        "\\x " + coded(WORD),
        "\\" + "\n" + coded(WORD) * 200,
    ],
)
def test_escapes_are_resolved_wherever_they_stand(raw):
    assert WORD.encode() in opened(raw.encode())


def test_a_word_behind_an_escaped_letter_or_line_break_stands_free():
    assert b"\n" + WORD.encode() in opened(rb'{"a": "x\n' + WORD.encode() + b'"}')
    assert f"é{WORD}".encode() in opened(rb'{"a": "\u00e9' + WORD.encode() + b'"}')


def test_pairs_of_surrogates_become_one_character_and_halves_become_none():
    assert "😀".encode() in opened(rb"\ud83d\ude00")
    assert "😀".encode() in opened(rb"\ud83d\ude00" * 400)
    opened(rb"\ud83d \ude00").decode()


def test_it_works_where_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert b"/" + WORD.encode() in opened(rb"a\/" + WORD.encode() + rb"\d \u00e9")


LONG = f"{{'key': '{WORD}', 'other': 'Zażółć gęślą jaźń???>>>'}}" * 3


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: text,
        lambda text: json.dumps({"a": text}),
        lambda text: json.dumps({"a": json.dumps({"b": f"Basic {text}"})}),
        lambda text: json.dumps({"a": text}).replace("/", "\\/"),
        lambda text: f"token={text.rstrip('=')};",
        lambda text: base64.b64encode(json.dumps({"inner": text}).encode()).decode(),
    ],
)
def test_base64_is_decoded_url_safe_and_twice_too(encode, wrap):
    assert WORD.encode() in opened(wrap(encode(LONG.encode()).decode()).encode())


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("shift", range(12))
def test_base64_that_is_broken_over_lines_is_one_block(width, end, shift):
    block = base64.b64encode(b"x" * (48 + shift) + WORD.encode()).decode()
    text = end.join(block[at : at + width] for at in range(0, len(block), width))
    assert WORD.encode() in opened(json.dumps({"a": text + end}).encode())


def test_utf_16_is_opened():
    assert WORD.encode() in opened(f'{{"a": "{WORD}"}}'.encode("utf-16"))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='\\u0abcdefAB=\n"/-_x', max_size=120).map(str.encode))
def test_no_bytes_crash_it(raw):
    opened(raw)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], min_codepoint=32), min_size=1, max_size=30), st.booleans())
def test_every_string_of_a_record_is_in_what_is_opened(text, ascii_only):
    assert text.encode() in opened(json.dumps({"a": text}, ensure_ascii=ascii_only).encode())
