"""Parquet, gzip and Zstandard files as the JSON text that the readers read: values, damage and bounds."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratchet.intake import containers
from ratchet.intake.containers import container_of, open_rows, unpack
from ratchet.intake.records import Unreadable

LINE = b'{"messages": [{"role": "user", "content": "x"}]}\n'


def parquet(columns, **options):
    buffer = BytesIO()
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), buffer, **options)
    return buffer.getvalue()


def rows(data):
    return [json.loads(line) for line in b"".join(unpack(data)).split(b"\n") if line]


def zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True)


def test_fields_that_arrow_added_to_nested_objects_are_gone_and_nulls_in_lists_stay():
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"id": "a"}]}]
    tools = [["a", None], None]
    (first, second) = rows(parquet({"messages": [said, said], "tools": tools}))
    assert first == {"messages": said, "tools": ["a", None]}
    assert second == {"messages": said}


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (datetime(2024, 1, 2, 3, 4, 5), pa.timestamp("us"), "2024-01-02T03:04:05"),
        (datetime(2024, 1, 2, 3, tzinfo=UTC), pa.timestamp("ms", tz="UTC"), "2024-01-02T03:00:00+00:00"),
        (1, pa.timestamp("ns"), "1970-01-01T00:00:00.000000001"),
        (datetime(2024, 1, 2).date(), pa.date32(), "2024-01-02"),
        (timedelta(milliseconds=1500), pa.duration("ms"), 1.5),
        (Decimal("2.25"), pa.decimal128(9, 2), 2.25),
        (Decimal("2.20"), pa.decimal128(9, 2), "2.20"),
        (Decimal("7"), pa.decimal128(9, 0), 7),
        (b"text", pa.binary(), "text"),
        (b"\xff\x00", pa.binary(), "data:application/octet-stream;base64,/wA="),
        ([("a", 1), ("b", None)], pa.map_(pa.string(), pa.int64()), {"a": 1, "b": None}),
        ("a\u2028\u0085\r\n", pa.large_string(), "a\u2028\u0085\r\n"),
        (2**64 - 1, pa.uint64(), 2**64 - 1),
        ([1, 2], pa.list_(pa.int8(), 2), [1, 2]),
    ],
)
def test_values_of_every_arrow_kind_have_one_json_form(value, kind, expected):
    assert rows(parquet({"v": pa.array([value], kind)})) == [{"v": expected}]


def test_json_typed_strings_become_the_value_they_hold():
    calls = pa.array(['{"x": [1, null]}', "not json"], pa.json_())
    assert [row["arguments"] for row in rows(parquet({"arguments": calls}))] == [{"x": [1, None]}, "not json"]


def test_dictionary_encoded_text_is_text():
    assert rows(parquet({"v": pa.array(["a", "b", "a"]).dictionary_encode()})) == [{"v": "a"}, {"v": "b"}, {"v": "a"}]


def test_a_value_without_json_form_costs_its_own_row():
    found = rows(parquet({"t": pa.array([0, 2**62, 5], pa.timestamp("us")), "n": [0, 1, 2]}))
    assert [row.get("n") for row in found] == [0, None, 2]
    assert found[1]["unreadable"] == "row group 0, row 1"


def test_a_key_twice_in_a_map_costs_its_own_row():
    pairs = pa.array([[("a", 1), ("a", 2)], [("a", 1)]], pa.map_(pa.string(), pa.int64()))
    first, second = rows(parquet({"m": pairs}))
    assert "unreadable" in first
    assert second == {"m": {"a": 1}}


def test_a_damaged_row_group_costs_itself_alone():
    data = bytearray(parquet({"n": list(range(300)), "s": ["x" * 50] * 300}, row_group_size=100, compression="gzip"))
    groups = pq.ParquetFile(BytesIO(bytes(data))).metadata
    start = groups.row_group(1).column(0).data_page_offset
    for at in range(start, start + 60):
        data[at] ^= 0x5A
    found = rows(bytes(data))
    assert [row["n"] for row in found if "n" in row] == [*range(100), *range(200, 300)]
    assert [row["unreadable"] for row in found if "n" not in row] == ["row group 1 from row 0"]


def test_two_columns_of_one_name_are_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(Unreadable, match="same name"):
        rows(parquet(table))


@pytest.mark.parametrize("data", [b"PAR1" + b"x" * 60, b"PAR1", b"", b"{}"])
def test_what_is_no_container_is_refused(data):
    with pytest.raises(Unreadable) as error:
        list(unpack(data))
    assert error.value.code == "bad_container"


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_compressed_lines_come_out_even_from_several_members(pack):
    assert b"".join(unpack(pack(LINE * 3) + pack(LINE))) == LINE * 4


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_truncated_stream_gives_what_it_has_and_says_so(pack):
    lines = b"".join(b'{"n": %d, "x": "%x"}\n' % (n, n**7) for n in range(50_000))
    packed = pack(lines)
    text = b"".join(unpack(packed[: len(packed) // 2]))
    *good, last = text.rstrip(b"\n").split(b"\n")
    assert lines.startswith(b"\n".join(good[:-1]))
    assert len(text) > len(lines) // 3
    assert "damaged or truncated" in json.loads(last)["reason"]


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_bomb_stops_at_the_bound(pack, monkeypatch):
    monkeypatch.setattr(containers, "FREE_BYTES", 1 << 20)
    chunks = list(unpack(pack(b"\0" * (32 << 20))))
    assert sum(map(len, chunks)) < 12 << 20
    assert "more than 250 times" in json.loads(chunks[-1])["reason"]


def test_a_parquet_bomb_stops_at_the_bound(monkeypatch):
    monkeypatch.setattr(containers, "FREE_BYTES", 1 << 20)
    data = parquet({"s": pa.array(["x" * 10_000] * 20_000).dictionary_encode()})
    chunks = list(unpack(data))
    assert sum(map(len, chunks)) < 300 * len(data)
    assert "more than 250 times" in json.loads(chunks[-1])["reason"]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view])
def test_lists_of_objects_keep_their_nulls_and_their_order(kind):
    inner = pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))])
    lists = [[{"a": "x", "b": [1, None]}, None], None, [{"a": None, "b": None}, {"a": "y", "b": []}]]
    found = rows(parquet({"v": pa.array(lists, kind(inner)), "n": [1, 2, 3]}))
    assert [row.get("v") for row in found] == [[{"a": "x", "b": [1, None]}, None], None, [{}, {"a": "y", "b": []}]]


def test_an_object_that_is_null_is_absent_and_an_empty_one_is_not():
    values = pa.array([None, {}, {"a": 1}], pa.struct([("a", pa.int64())]))
    assert rows(parquet({"v": values, "n": [1, 2, 3]})) == [{"n": 1}, {"v": {}, "n": 2}, {"v": {"a": 1}, "n": 3}]


def test_rows_of_many_batches_are_those_that_arrow_gives():
    made = [
        {"n": n, "messages": [{"role": "user", "content": f"m{n}.{k}"} for k in range(n % 4)], "tag": "ab"[n % 2]}
        for n in range(1_000)
    ]
    assert rows(parquet(pa.Table.from_pylist(made), row_group_size=300)) == made


def test_a_file_is_opened_by_path_and_by_handle(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(LINE))
    assert container_of(path.read_bytes()) == "gzip"
    assert b"".join(open_rows(path)) == LINE
    with path.open("rb") as file:
        assert b"".join(open_rows(file)) == LINE
        assert not file.closed


def test_rows_come_in_batches_not_all_at_once(tmp_path):
    table = pa.table({"n": list(range(5_000)), "s": ["x" * 1000] * 5_000})
    chunks = list(unpack(parquet(table)))
    assert max(map(len, chunks)) < 2 * containers.CHUNK_BYTES
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    assert sum(chunk.count(b"\n") for chunk in chunks) == 5_000
