"""Inspect logs: archives of every shape and state, attachments, events, bounds of unpacking, and the `.json` form."""

import io
import json
import struct
import zipfile
from pathlib import Path

import pytest
from inspect_world import DOG, HEADER, START, answer, archive, call, chunked, entries, model_event, sample, zstd_archive

from ratchet.intake import archive as archives
from ratchet.intake.formats import recognise
from ratchet.intake.formats.inspect_ai import read
from ratchet.intake.records import Record, Rejected
from ratchet.intake.validate import trajectory_of

SAMPLES = Path(__file__).parent / "samples" / "inspect_ai"


def stored(name):
    return list(read((SAMPLES / name).read_bytes(), name))


def log(record):
    assert isinstance(record, Record), record.reason
    return trajectory_of(record, tenant="acme", grant_id="g")


def one(**fields):
    """Read one sample with these fields, out of an archive."""
    (record,) = read(archive(entries(sample(**fields))), "x.eval")
    return record


@pytest.mark.parametrize("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.name)
def test_every_shape_is_recognised_by_its_content_alone(path):
    assert recognise(path.read_bytes(), "x") == ["inspect_ai"]


@pytest.mark.parametrize(
    "files", [{"a.json": {}}, {"header.txt": {}}, {"samples/a.json": {}}, {"trace/start.json": {}}]
)
def test_another_archive_is_not_an_inspect_log_whatever_its_name(files):
    assert recognise(archive(files), "x.eval") == []


def test_a_sample_becomes_its_conversation_with_calls_and_their_own_answers():
    found = log(stored("finished.eval")[0])
    assert [step.source for step in found.steps] == ["user", "agent", "agent"]
    assert [(item.tool_call_id, item.arguments) for item in found.steps[1].tool_calls] == [
        ("c1", {"cmd": "ls"}), ("c2", {"cmd": "pwd"}),
    ]  # fmt: skip
    assert {item.source_call_id: item.content for item in found.steps[1].observation.results}["c2"] == "/"
    assert found.steps[1].reasoning_content == "look"
    assert found.steps[1].extra["inspect"]["reasoning"] == [{"signature": "sig"}]


def test_attachments_are_put_in_place_and_a_lost_one_is_noted():
    record = stored("finished.eval")[0]
    assert log(record).steps[0].message == DOG
    assert log(record).agent.tool_definitions[0]["function"]["description"] == "Run a command."
    assert log(record).steps[1].observation.results[1].content == "attachment://gone"
    assert record.anomalies.count("unresolved_attachment") == 1


def test_the_first_form_of_attachments_is_read():
    body = sample(messages=[{"role": "user", "content": "tc://dog"}], attachments=None, events=None)
    body["transcript"] = {"events": [], "content": {"dog": DOG}}
    (record,) = read(archive(entries(body)), "x.eval")
    assert log(record).steps[0].message == DOG


def test_usage_times_and_tools_come_from_the_model_events():
    found = log(stored("finished.eval")[0])
    assert [step.timestamp for step in found.steps] == [None, "2026-01-02T03:04:01+00:00", "2026-01-02T03:04:03+00:00"]
    metrics = found.steps[1].metrics
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (14, 3, 4)


def test_usage_is_placed_by_what_was_said_where_messages_have_no_ids():
    said = [{"role": "assistant", "source": "generate", "content": text} for text in ("same", "same", DOG)]
    graded = {"role": "assistant", "source": "generate", "content": "GRADE: C"}
    told = [*said[:2], {**said[2], "content": "attachment://dog"}, graded]
    events = [model_event(message, [], number) for number, message in enumerate(told, 1)]
    found = log(one(messages=said, events=events)).steps
    assert [step.timestamp[-7] for step in found] == ["1", "2", "3"]
    assert all(step.metrics for step in found)


@pytest.mark.parametrize(
    "begin", [{"event": "step", "action": "begin", "type": "scorer"}, {"event": "span_begin", "type": "scorers"}]
)
def test_a_graders_history_is_not_taken_for_the_agents(begin):
    own = model_event(answer("m1", "own"), [{"role": "user", "content": "q"}], 1)
    graders = model_event(answer("m2", "GRADE: C"), [{"role": "user", "content": "grade this"}], 2)
    for events in ([own, begin, graders], [own, {**graders, "role": "grader"}]):
        assert [step.message for step in log(one(messages=[], events=events)).steps] == ["q", "own"]


def test_scores_and_target_are_claims_and_never_a_score():
    found = log(stored("finished.eval")[0])
    assert found.extra["inspect"]["scores"]["match"]["value"] == "C"
    assert found.extra["inspect"]["target"] == ["x", "y"]
    assert found.ratchet.score.kind == "unscored"


def test_task_epoch_environment_and_seed_are_claimed():
    first, second = stored("finished.eval")
    own, other = log(first).ratchet, log(second).ratchet
    assert (own.task_id, own.environment, own.environment_version, own.seed) == ("bugs/a", "bugs", "0", 7)
    assert (other.task_id, other.repo, other.issue_id) == ("django__django-123", "django/django", "django/django#123")
    assert log(second).extra["inspect"]["epoch"] == 2
    assert own.latency_s == 2.5


def test_an_approval_of_a_call_is_kept_and_an_escalation_decides_nothing():
    (approval,) = log(stored("finished.eval")[0]).ratchet.approvals
    assert (approval.by, approval.decision, approval.subject) == ("human", "approved", "c1")
    event = {"event": "approval", "timestamp": "2026-01-02T00:00:00Z", "approver": "auto", "call": call("c1")}
    found = one(events=[{**event, "decision": "reject"}, {**event, "decision": "escalate"}])
    assert [item.decision for item in log(found).ratchet.approvals] == ["refused"]


def test_dropped_events_are_counted():
    assert sorted(stored("finished.eval")[0].dropped) == [
        "events.model.call", "events.model.call", "events.sample_init", "events.tool",
    ]  # fmt: skip


def test_answers_that_stood_in_the_input_are_copied_context():
    shown = {"role": "assistant", "source": "input", "content": "an example"}
    found = log(one(messages=[{"role": "user", "content": "q"}, shown, answer("m", "own")]))
    assert [step.is_copied_context for step in found.steps] == [None, True, None]


def test_the_last_history_is_taken_where_the_sample_has_no_messages():
    seen = [{"role": "user", "content": "q"}]
    first, last = answer("m1", "one"), answer("m2", "two")
    events = [model_event(first, seen, 1), model_event(last, [*seen, first, {"role": "user", "content": "go on"}], 2)]
    record = one(messages=[], events=events)
    assert [step.message for step in log(record).steps] == ["q", "one", "go on", "two"]
    assert "messages_from_events" in record.anomalies


@pytest.mark.parametrize("holder", ["message_pool", "events_data"])
def test_a_history_in_a_pool_is_put_together(holder):
    pool = [{"role": "user", "content": "q"}, {"role": "user", "content": "other"}, answer("m1", "one")]
    event = {**model_event(answer("m2", "two"), [], 1), "input_refs": [[0, 1], [2, 3]]}
    held = {"events_data": {"messages": pool, "calls": []}} if holder == "events_data" else {holder: pool}
    record = one(messages=[], events=[event], **held)
    assert [step.message for step in log(record).steps] == ["q", "one", "two"]


def test_a_sample_that_never_spoke_keeps_its_input():
    record = one(messages=[], events=[], error={"message": "boom", "traceback": "", "traceback_ansi": ""})
    assert [(step.source, step.message) for step in log(record).steps] == [("user", DOG)]
    assert {"input_only", "sample_error"} <= set(record.anomalies)


def test_parts_of_every_kind_are_kept():
    parts = [
        {"type": "text", "text": "see", "refusal": None, "citations": [{"type": "url", "url": "u"}]},
        {"type": "image", "image": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "audio", "audio": "data:audio/wav;base64,AAAA", "format": "wav"},
        {"type": "image", "image": "<base64-data-removed>"},
        {"type": "document", "document": "a.pdf"},
    ]
    record = one(messages=[{"role": "user", "content": parts}])
    (step,) = log(record).steps
    assert [part.type for part in step.message] == ["text", "image", "audio", "image", "text"]
    assert step.extra["inspect"]["parts"]["0"] == {"citations": [{"type": "url", "url": "u"}]}
    assert {"media_removed", "unknown_part"} <= set(record.anomalies)


def test_a_tool_of_the_provider_is_a_call_with_its_result():
    use = {"type": "tool_use", "tool_type": "web_search", "id": "w1", "name": "web_search", "arguments": '{"q": 1}',
           "result": "found"}  # fmt: skip
    (step,) = log(one(messages=[answer("m", [use, {"type": "text", "text": "so"}])])).steps
    assert (step.tool_calls[0].arguments, step.observation.results[0].content) == ({"q": 1}, "found")
    assert step.message == "so"


def test_duplicate_call_ids_are_reissued_and_each_call_has_its_own_answer():
    turns = [
        message
        for n in "12"
        for message in (answer(f"m{n}", "", [call("same")]), {"role": "tool", "tool_call_id": "same", "content": n})
    ]
    record = one(messages=turns)
    results = [step.observation.results[0] for step in log(record).steps]
    assert [result.content for result in results] == ["1", "2"]
    assert len({result.source_call_id for result in results}) == 2
    assert "duplicate_call_id" in record.anomalies


def test_a_message_id_is_not_taken_for_a_call_id():
    turns = [answer("m", "", [call("c1")]), {"id": "x9", "role": "tool", "content": "1"}]
    record = one(messages=turns)
    assert log(record).steps[0].observation.results[0].source_call_id == "c1"
    assert "result_paired_by_order" in record.anomalies


@pytest.mark.parametrize("name", ["finished.eval", "zstandard.eval", "chunked.eval", "unfinished.eval", "log.json"])
def test_every_shape_of_log_gives_the_same_trajectory(name):
    found, expected = log(stored(name)[0]), log(stored("finished.eval")[0])
    assert found.steps == expected.steps
    assert found.extra["inspect"]["scores"] == expected.extra["inspect"]["scores"]


def test_an_unfinished_archive_is_read_and_says_so():
    (record,) = stored("unfinished.eval")
    assert "unfinished_log" in record.anomalies
    assert log(record).ratchet.task_id == "bugs/a"


def test_of_a_journal_alone_every_sample_is_set_aside_by_name():
    found = stored("journal_only.eval")
    assert [item.code for item in found] == ["sample_missing", "sample_missing"]
    assert [json.loads(item.raw)["id"] for item in found] == ["a", "b"]


def test_a_journal_without_samples_says_that_there_is_none():
    (item,) = read(archive({"_journal/start.json": START}), "x.eval")
    assert item.code == "no_samples"


def test_an_archive_that_lost_its_directory_is_read_as_far_as_it_goes():
    found = stored("cut_off.eval")
    assert [log(item).ratchet.task_id for item in found] == ["bugs/a", "bugs/b"]
    assert all("truncated_archive" in item.anomalies for item in found)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7, 0.9])
def test_an_archive_cut_anywhere_gives_whole_samples_or_says_why(share):
    data = archive(entries(sample("a"), sample("b")))
    for item in read(data[: int(len(data) * share)], "x.eval"):
        assert isinstance(item, Rejected) or log(item).steps


def test_entries_whose_sizes_stand_behind_them_are_found_without_a_directory():
    whole = archive({"_journal/start.json": START, "samples/a_epoch_1.json": sample("a")})
    data, at = b"", 0
    while whole[at : at + 4] == b"PK\x03\x04":
        head = list(struct.unpack("<4s5H3I2H", whole[at : at + 30]))
        end = at + 30 + head[9] + head[10] + head[7]
        told = struct.pack("<4s3I", b"PK\x07\x08", *head[6:9])
        content = whole[at + 30 : end]
        head[2], head[6:9] = head[2] | 8, [0, 0, 0]
        data += struct.pack("<4s5H3I2H", *head) + content + told
        at = end
    (record,) = read(data, "x.eval")
    assert log(record).ratchet.task_id == "bugs/a"


def test_a_damaged_sample_costs_itself_alone():
    data = bytearray(archive(entries(sample("a"), sample("b"))))
    at = data.find(b"samples/a_epoch_1.json") + 60
    data[at : at + 20] = b"\xff" * 20
    found = list(read(bytes(data), "x.eval"))
    assert [getattr(item, "code", None) for item in found] == ["bad_entry", None]


def test_a_sample_that_is_no_sound_json_costs_itself_alone():
    files = entries(sample("a"), sample("b"))
    files["samples/a_epoch_1.json"] = b'{"id": "a", "epoch": 1, "messages": [], "x": NaN}'
    assert [getattr(item, "code", None) for item in read(archive(files), "x")] == ["not_finite", None]


@pytest.mark.parametrize("body", [b"[]", b"{}", b"", b"[{}, {}]", b'{"id": 1, "epoch": 1}', b"\xff"])
def test_an_entry_that_is_no_sample_is_rejected(body):
    (item,) = read(archive({"_journal/start.json": START, "samples/a_epoch_1.json": body}), "x.eval")
    assert isinstance(item, Rejected)


def test_nan_in_the_results_of_a_log_costs_nothing():
    files = {**entries(sample("a")), "header.json": {**HEADER, "results": {"value": float("nan")}}}
    (record,) = read(archive(files), "x.eval")
    assert log(record).extra["inspect"]["log"]["status"] == "success"
    assert "head_unreadable" not in record.anomalies


def test_a_bomb_is_refused_before_anything_is_unpacked(monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    files = {**entries(sample("a")), "samples/b_epoch_1.json": b"0" * (8 << 20)}
    (item,) = read(archive(files), "x.eval")
    assert item.code == "zip_bomb"


def test_overlapping_entries_are_a_bomb(monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    data = archive({f"samples/{n}_epoch_1.json": b"0" * 200_000 for n in range(20)})
    directory = data.find(b"PK\x01\x02")
    first, record = data.find(b"PK\x03\x04", 1), data[directory:]
    offsets = bytearray(record)
    at = 0
    while (at := offsets.find(b"PK\x01\x02", at)) >= 0:
        offsets[at + 42 : at + 46] = struct.pack("<I", 0)
        at += 4
    end = offsets.find(b"PK\x05\x06")
    offsets[end + 16 : end + 20] = struct.pack("<I", first)
    (item,) = read(data[:first] + bytes(offsets), "x.eval")
    assert item.code == "zip_bomb"


def test_too_many_entries_are_refused(monkeypatch):
    monkeypatch.setattr(archives, "MAX_ENTRIES", 3)
    assert next(read(archive(entries(sample("a"))), "x.eval")).code == "zip_bomb"


def test_an_entry_that_is_too_big_costs_itself_alone(monkeypatch):
    small, big = sample("a"), sample("b", metadata={"pad": "x" * 50_000})
    monkeypatch.setattr(archives, "MAX_ENTRY_BYTES", 20_000)
    found = list(read(archive(entries(small, big), zipfile.ZIP_STORED), "x.eval"))
    assert [getattr(item, "code", None) for item in found] == [None, "entry_too_big"]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, 93])
def test_an_entry_that_unpacks_to_more_than_it_states_is_refused(method):
    data = archive({"_journal/start.json": START, "samples/a_epoch_1.json": b"0" * 100_000}, method)
    lying = data.replace(struct.pack("<I", 100_000), struct.pack("<I", 10))
    found = [item.code for item in read(lying, "x.eval")]
    assert found == ["bad_entry"]


@pytest.mark.parametrize("method", [12, 14, 95])
def test_an_entry_packed_by_another_method_is_refused_by_its_number(method):
    files = {"_journal/start.json": json.dumps(START).encode(), "samples/a_epoch_1.json": b"{}"}
    (item,) = read(zstd_archive(files, method), "x.eval")
    assert item.code == "unknown_compression"
    assert str(method) in item.reason


def test_an_encrypted_entry_is_refused():
    data = bytearray(archive({"samples/a_epoch_1.json": sample("a")}))
    data[6] |= 1
    data[data.find(b"PK\x01\x02") + 8] |= 1
    assert next(read(bytes(data), "x.eval")).code == "encrypted_entry"


def test_of_two_entries_with_one_name_the_later_one_counts():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr("samples/a_epoch_1.json", json.dumps(sample("a")))
        with pytest.warns(UserWarning, match="Duplicate name"):
            opened.writestr("samples/a_epoch_1.json", json.dumps(sample("b")))
    (record,) = read(buffer.getvalue(), "x.eval")
    assert log(record).trajectory_id == "u-b-1"


def test_ranges_of_a_chunked_sample_must_lie_inside_its_messages():
    files = chunked(sample("a"))
    shell = next(name for name in files if name.endswith("/sample.json"))
    files[shell]["message_refs"] = [[0, 99]]
    (item,) = read(archive(files), "x.eval")
    assert item.code == "bad_message"


def test_a_bad_sample_of_a_document_never_costs_a_good_one():
    data = (SAMPLES / "nan_score_cut_off.json").read_bytes()
    found = list(read(data, "x.json"))
    assert [getattr(item, "code", None) for item in found] == [None, "not_finite", "truncated"]
    for item in found:
        assert data[item.offset : item.offset + len(item.raw)] == item.raw


def test_a_document_in_utf_16_is_read_and_noted():
    data = (SAMPLES / "log.json").read_text().encode("utf-16")
    assert recognise(data, "x.json") == ["inspect_ai"]
    assert all("utf16" in item.anomalies and log(item).steps for item in read(data, "x.json"))


def test_a_document_without_samples_is_set_aside():
    assert [item.code for item in read(json.dumps(HEADER).encode(), "x.json")] == ["no_samples"]
