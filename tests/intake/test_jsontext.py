"""JSON as it really occurs: every quirk is kept as an anomaly or rejected by name, and never costs its neighbours."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.intake import jsontext
from ratchet.intake.jsontext import MAX_DEPTH, Lines, Value, count_lines, decode_sound, values
from ratchet.intake.records import Rejected

GOOD = b'{"a": 1}'
BAD = {
    "not_json": b'{"a": 1,}',
    "not_finite": b'{"a": NaN}',
    "duplicate_key": b'{"a": 1, "a": 2}',
    "lone_surrogate": b'{"a": "\\ud800"}',
    "huge_integer": b'{"a": ' + b"9" * 5000 + b"}",
    "too_deep": b'{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "not_utf8": b'{"a": "\xff"}',
    "not_an_object": b"17",
}


def codes(data):
    return [item.code if isinstance(item, Rejected) else item.value for item in values(data)]


@pytest.mark.parametrize("code", BAD)
def test_a_bad_line_is_rejected_by_name_and_costs_no_good_one(code):
    data = b"\n".join([GOOD, BAD[code], GOOD])
    assert codes(data) == [{"a": 1}, code, {"a": 1}]


@pytest.mark.parametrize("code", sorted(set(BAD) - {"not_utf8"}))
def test_a_bad_element_of_an_array_costs_no_good_one(code):
    data = b"[" + b", ".join([GOOD, BAD[code], GOOD]) + b"]"
    assert codes(data) == [{"a": 1}, code, {"a": 1}]


@pytest.mark.parametrize("number", [b"Infinity", b"-Infinity", b"1e999", b"-1e999"])
def test_no_spelling_of_infinity_comes_in(number):
    assert codes(b'{"a": ' + number + b"}") == ["not_finite"]


def test_lines_are_split_on_newline_bytes_alone():
    texts = ["\u2028", "\u0085", "\x0c", "\r", "\x1e"]
    lines = [json.dumps({"a": text}, ensure_ascii=False).encode() for text in texts]
    assert [item.value["a"] for item in values(b"\r\n".join(lines) + b"\r\n")] == texts


def test_a_truncated_last_line_is_named_with_its_offset():
    first, second = list(values(GOOD + b"\n" + b'{"a": "cut'))
    assert isinstance(first, Value)
    assert (second.code, second.number, second.offset) == ("truncated", 1, 9)


def test_a_truncated_array_keeps_what_came_before():
    assert codes(b'[{"a": 1}, {"a": 2}, {"a":') == [{"a": 1}, {"a": 2}, "truncated"]


def test_a_broken_first_line_does_not_hide_the_rest():
    assert codes(b'{"a": [1, \n{"a": 1}\n{"a": 1}\n') == ["not_json", {"a": 1}, {"a": 1}]


def test_a_printed_document_is_one_record():
    assert codes(json.dumps({"a": [{"b": 1}, {"b": 2}]}, indent=2).encode()) == [{"a": [{"b": 1}, {"b": 2}]}]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_other_encodings_are_read_and_noted(encoding):
    (item,) = values('{"a": "ä€😀"}'.encode(encoding))
    assert item.value == {"a": "ä€😀"}
    assert item.anomalies == ({"utf-16": "utf16", "utf-8-sig": "byte_order_mark"}[encoding],)


def test_broken_utf_16_is_rejected_whole():
    assert codes("{}".encode("utf-16") + b"\x00") == ["not_utf16"]


def test_integers_beyond_64_bits_are_exact_and_noted():
    (item,) = values(b'{"a": 340282366920938463463374607431768211455}')
    assert (item.value["a"], item.anomalies) == (2**128 - 1, ("big_integer",))


def test_nesting_is_read_up_to_its_limit():
    def deep(levels):
        return b'{"a":' * levels + b"1" + b"}" * levels

    assert isinstance(next(values(deep(MAX_DEPTH))), Value)
    assert codes(deep(MAX_DEPTH + 1)) == ["too_deep"]


def test_a_line_of_700_kb_is_read():
    (item,) = values(json.dumps({"a": "x" * 700_000}).encode())
    assert len(item.value["a"]) == 700_000


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
objects = st.lists(st.dictionaries(st.text(max_size=4), plain, min_size=1, max_size=3), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(objects, st.booleans(), st.sampled_from(["lines", "array", "printed"]))
def test_what_json_writes_is_read_back_with_its_own_bytes(items, ascii_only, form):
    texts = [json.dumps(item, ensure_ascii=ascii_only) for item in items]
    if form == "lines":
        data = "\n".join(texts).encode()
    elif form == "array":
        data = ("[" + ", ".join(texts) + "]").encode()
    else:
        data = json.dumps(items, indent=1, ensure_ascii=ascii_only).encode()
    found = list(values(data))
    assert [item.value for item in found] == items
    for item in found:
        assert data[item.offset : item.offset + len(item.raw)] == item.raw
        assert json.loads(item.raw) == item.value


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ntru1e9.\n \ud7ff', max_size=80).map(str.encode))
def test_no_bytes_crash_it(data):
    for item in values(data):
        assert isinstance(item, Value | Rejected)


# What the fast decoder must not let through, and what must come out the same, glued together at random.
_SCRAPS = st.sampled_from(
    [
        '{"a": 1}', '{"a": 1, "a": 2}', '{"a": {"b": 1, "\\u0062": 2}}', '{"\\u0022": 1, "\\u0022": 2}',
        '{"a" :1,"a":2}', '{"a\\\\": 1, "a\\\\": 2}', '{"a": ":", "b": "\\":"}', '{"a": NaN}', '{"a": -Infinity}',
        '{"a": 1e999}', '{"a": 1e18}', '{"a": 18446744073709551616}', '{"a": -9223372036854775809}',
        '{"a": 9223372036854775808}', '{"a": "1e+20"}', '{"a": 123456789012345678901234567890}', '{"a": "\\ud800"}',
        '{"\\udc00": 1}', '{"a": "\\ud83d\\ude00"}', '{"a": 1} x', '{"a": [' * 33 + "1" + "]}" * 33,
        '{"a": [' * 31 + "{}" + "]}" * 31, '{"a": ' * 64 + "[]" + "}" * 64, "[1]", "{}",
        '{"a": 1.5e-7, "b": -0, "c": -0.0, "d": 1E5}', '{"a": 01}', '{"a": "\t"}', '{"a": "\\x"}', '{"é": "\u2028"}',
        '"a"', "",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(_SCRAPS, min_size=1, max_size=4), st.sampled_from(["\n", "\r\n", " "]))
def test_the_fast_decoder_gives_what_the_strict_one_gives(scraps, between):
    data = between.join(scraps).encode()
    inner = json.dumps({"a": scraps[0]})
    fast = [list(values(data)), list(values(Lines(data))), decode_sound(scraps[0]), decode_sound(inner)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "sound", lambda raw: None)
        strict = [list(values(data)), list(values(Lines(data))), decode_sound(scraps[0]), decode_sound(inner)]
    assert repr(fast) == repr(strict)
    assert [getattr(item, "value", None) for item in fast[0]] == [getattr(item, "value", None) for item in strict[0]]


@settings(max_examples=100, deadline=None)
@given(plain)
def test_the_fast_decoder_keeps_every_value_exactly(value):
    assert repr(decode_sound(json.dumps([value]))) == repr([value])


def test_lines_that_were_cut_out_are_read_as_lines_whatever_they_look_like():
    cut = Lines(b'rubbish\nmore rubbish\n[{"a": 1}]\n{"a": 1}\n{"a": 2')
    cut.last = False
    assert codes(cut) == ["not_json", "not_json", "not_an_object", {"a": 1}, "not_json"]
    cut.last = True
    assert codes(cut)[-1] == "truncated"


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"a", b"a\n", b"a\nb", b"\n\na\n \t\n\r\nb\n\n", b" a\n b\n", b"a\r\nb\r\n\r\n"]
)
def test_lines_are_counted_as_they_are_split(data):
    assert count_lines(data) == len(list(jsontext._split(data)))


def test_offsets_behind_a_byte_order_mark_are_those_of_the_source():
    data = '{"a": 1}\n{"a": 2}'.encode("utf-8-sig")
    assert [data[item.offset : item.offset + len(item.raw)] for item in values(data)] == [b'{"a": 1}', b'{"a": 2}']
