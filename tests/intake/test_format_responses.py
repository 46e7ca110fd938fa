"""Responses API: items of every kind, conversations joined across records, wrappers, and arrays of items."""

import json
from pathlib import Path

import pytest

from ratchet.intake.formats import recognise
from ratchet.intake.formats.openai_responses import read
from ratchet.intake.records import Record, Rejected
from ratchet.intake.validate import trajectory_of

SAMPLES = Path(__file__).parent / "samples" / "openai_responses"
ASKED = {"role": "user", "content": "q"}


def sample(name):
    return list(read((SAMPLES / name).read_bytes(), name))


def rows(*bodies):
    return list(read("".join(json.dumps(body) + "\n" for body in bodies).encode(), "x.jsonl"))


def log(record):
    assert isinstance(record, Record), record.reason
    return trajectory_of(record, tenant="acme", grant_id="g")


def said(text, name="m"):
    return {"type": "message", "id": name, "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def response(name, asked, *answered, **fields):
    return {"object": "response", "id": name, "input": asked, "output": list(answered), "model": "m", **fields}


def one(*items, **fields):
    (record,) = rows(response("resp_1", [], *items, **fields))
    return record


def hosted(name):
    """The call of a hosted tool in the sample, with the content of its result."""
    for step in log(sample("hosted_tools.json")[0]).steps:
        for call in step.tool_calls or ():
            if call.function_name == name:
                results = step.observation.results
                return call, next(item.content for item in results if item.source_call_id == call.tool_call_id)
    raise AssertionError(name)


def test_a_conversation_by_previous_response_is_one_trajectory_at_its_last_response():
    last, _, _ = sample("chained.jsonl")
    found = log(last)
    assert last.number == 2
    assert [(step.source, step.message) for step in found.steps] == [
        ("system", "Be brief."), ("user", "Weather in Rome and Oslo?"), ("agent", ""), ("agent", "21 and 1."),
        ("user", "Warmer one?"), ("agent", "Rome."),
    ]  # fmt: skip
    assert last.anomalies.count("joined_history") == 2
    assert found.extra["openai_responses"]["history"] == ["resp_1", "resp_2"]


def test_parallel_calls_answered_in_any_order_keep_their_own_answers():
    step = log(sample("chained.jsonl")[0]).steps[2]
    answers = {item.source_call_id: item.content for item in step.observation.results}
    assert [(call.arguments["city"], answers[call.tool_call_id]) for call in step.tool_calls] == [
        ("Rome", "21 C"), ("Oslo", "1 C"),
    ]  # fmt: skip
    assert step.reasoning_content == "two calls"
    assert step.extra["openai_responses"]["reasoning"] == [{"id": "rs_1", "encrypted_content": "gAAA"}]


def test_what_two_conversations_share_is_copied_context_in_the_second():
    first, second, _ = sample("chained.jsonl")
    assert not any(step.is_copied_context for step in log(first).steps)
    assert [bool(step.is_copied_context) for step in log(second).steps] == [True] * 4 + [False] * 2


def test_a_history_that_is_elsewhere_is_noted():
    record = sample("chained.jsonl")[2]
    assert "history_elsewhere" in record.anomalies
    assert [step.message for step in log(record).steps] == ["And this?", "Unknown."]


def test_usage_time_model_and_tools_are_kept():
    found = log(sample("chained.jsonl")[0])
    step = found.steps[2]
    assert (step.metrics.prompt_tokens, step.metrics.completion_tokens) == (20, 9)
    assert step.timestamp == "2025-06-15T15:06:41+00:00"
    assert found.agent.model_name == "gpt-x"
    assert found.agent.tool_definitions == [
        {"type": "function", "function": {
            "name": "weather", "description": "Weather.", "parameters": {"type": "object"}, "strict": True,
        }},
        {"type": "web_search"},
    ]  # fmt: skip


def test_of_whole_histories_repeated_in_every_input_the_last_is_taken():
    (record,) = sample("stateless.jsonl")
    found = log(record)
    assert [(step.source, step.message) for step in found.steps] == [
        ("user", "Read a.txt"), ("agent", ""), ("agent", "It says hello."),
    ]  # fmt: skip
    assert found.steps[1].observation.results[0].content == "hello"
    # The input of the second left the reasoning out; the first record has it, and its usage.
    assert (found.steps[1].reasoning_content, found.steps[1].metrics.prompt_tokens) == ("look first", 10)


def test_histories_are_joined_in_whatever_order_the_records_stand():
    lines = (SAMPLES / "stateless.jsonl").read_bytes().splitlines(keepends=True)
    (record,) = read(b"".join(reversed(lines)), "x.jsonl")
    assert log(record).steps == log(sample("stateless.jsonl")[0]).steps


def test_the_same_question_asked_twice_is_two_conversations():
    found = rows(response("resp_1", [ASKED], said("a")), response("resp_2", [ASKED], said("b")))
    assert [[step.is_copied_context for step in log(item).steps] for item in found] == [[None, None], [None, None]]


def test_responses_that_go_on_from_each_other_in_a_circle_are_all_kept():
    found = rows(
        response("resp_1", "a", said("1"), previous_response_id="resp_2"),
        response("resp_2", "b", said("2"), previous_response_id="resp_1"),
    )
    texts = [step.message for item in found for step in log(item).steps]
    assert {"1", "2"} <= set(texts)


def test_a_broken_record_in_the_middle_costs_only_itself():
    found = rows(
        response("resp_1", "a", said("1")),
        response("resp_2", [{"role": "wizard", "content": "x"}], previous_response_id="resp_1"),
        response("resp_3", "c", said("3"), previous_response_id="resp_2"),
    )
    assert [getattr(item, "code", None) for item in found] == [None, "unknown_role", None]
    assert "history_elsewhere" in found[2].anomalies


def test_changed_instructions_are_said_where_they_changed():
    (record,) = rows(
        response("resp_1", "a", said("1"), instructions="One."),
        response("resp_2", "b", said("2"), instructions="One.", previous_response_id="resp_1"),
        response("resp_3", "c", said("3"), instructions="Two.", previous_response_id="resp_2"),
    )
    assert [step.message for step in log(record).steps] == ["One.", "a", "1", "b", "2", "Two.", "c", "3"]


def test_settings_of_earlier_records_are_dropped_and_counted():
    (record,) = rows(
        response("resp_1", "a", said("1"), temperature=1.0, top_p=0.5),
        response("resp_2", "b", said("2"), temperature=1.0, previous_response_id="resp_1"),
    )
    assert record.dropped == ("history.top_p",)


def test_a_reference_to_a_known_item_is_that_item():
    (record,) = rows(
        response("resp_1", [ASKED], said("a", "msg_1")),
        response("resp_2", [ASKED, {"type": "item_reference", "id": "msg_1"}, ASKED], said("b", "msg_2")),
    )
    assert [step.message for step in log(record).steps] == ["q", "a", "q", "b"]


def test_a_reference_to_an_unknown_item_is_kept_and_noted():
    record = sample("hosted_tools.json")[0]
    kept = [(step.extra or {}).get("openai_responses", {}).get("item", {}).get("type") for step in log(record).steps]
    assert {"mcp_list_tools", "item_reference"} <= set(kept)
    assert {"unresolved_reference", "item_without_place"} <= set(record.anomalies)


@pytest.mark.parametrize(
    ("name", "arguments", "content"),
    [
        ("web_search", {"action": {"type": "search", "query": "cats"}}, None),
        ("file_search", {"queries": ["cats"]}, '{"results":[{"file_id":"file_1","text":"meow"}]}'),
        ("code_interpreter", {"code": "1+1", "container_id": "cn"}, '{"outputs":[{"logs":"2","type":"logs"}]}'),
        ("ask", {"q": "cats"}, "felines"),
        ("local_shell", {"action": {"type": "exec", "command": ["ls"], "env": {}}}, "a.txt"),
        ("sql", {"input": "select 1"}, "1"),
    ],
)
def test_tools_of_every_kind_are_calls_with_their_results(name, arguments, content):
    call, result = hosted(name)
    assert (call.arguments, result) == (arguments, content)


def test_screenshots_and_made_images_are_images():
    for name in ("computer", "image_generation"):
        ((part,),) = [hosted(name)[1]]
        assert (part.type, part.source.path) == ("image", "data:image/png;base64,iVBORw0KGgo=")


def test_the_output_of_a_shell_is_kept_whole():
    assert json.loads(hosted("shell")[1])[0]["outcome"] == {"type": "exit", "exit_code": 0}


def test_parts_citations_refusals_and_state_are_kept():
    record = sample("hosted_tools.json")[0]
    found = log(record)
    assert [part.type for part in found.steps[0].message] == ["text", "image", "text"]
    last = found.steps[-1]
    assert [part.text for part in last.message] == ["Cats.", "No dogs."]
    assert last.extra["openai_responses"]["parts"]["0"]["annotations"][0]["type"] == "url_citation"
    assert last.extra["openai_responses"]["parts"]["1"] == {"type": "refusal"}
    assert found.session_id == "conv_1"
    assert found.extra["openai_responses"]["metadata"] == {"run": "r7"}
    assert "incomplete_response" in record.anomalies


def test_a_batch_line_is_its_response_and_a_failed_one_is_set_aside():
    good, failed = sample("batch.jsonl")
    assert [step.message for step in log(good).steps] == ["hi"]
    beside = log(good).extra["openai_responses"]["record"]
    assert (beside["custom_id"], beside["response"]) == ("r-1", {"status_code": 200, "request_id": "q"})
    assert failed.code == "no_items"


def test_request_and_response_side_by_side_are_one_record():
    (record,) = sample("request_response.jsonl")
    found = log(record)
    assert [step.message for step in found.steps] == ["hi", "hello"]
    assert found.extra["openai_responses"]["temperature"] == 0.5
    assert found.extra["openai_responses"]["record"] == {"latency_ms": 12}


def test_an_array_of_items_is_one_conversation_with_its_quirks_noted():
    (record,) = sample("items.json")
    found = log(record)
    assert record.raw == (SAMPLES / "items.json").read_bytes()
    calls = [call for step in found.steps for call in step.tool_calls or ()]
    assert len({call.tool_call_id for call in calls}) == len(calls) == 3
    assert calls[1].extra["arguments_text"] == "{not json"
    assert set(record.anomalies) == {
        "empty_arguments", "arguments_not_an_object", "duplicate_call_id", "missing_call_id", "result_paired_by_order",
        "orphan_result", "ends_on_result",
    }  # fmt: skip
    answers = {
        item.source_call_id: item.content
        for step in found.steps
        if step.observation
        for item in step.observation.results
    }
    assert [answers[call.tool_call_id] for call in calls] == ["1", "2", "3"]


def test_an_array_with_a_broken_item_is_set_aside_whole():
    data = (SAMPLES / "items.json").read_bytes().replace(b'"ghost"', b"NaN")
    (item,) = read(data, "x.json")
    assert (item.code, item.raw) == ("not_finite", data)


def test_arguments_as_an_object_are_taken_and_noted():
    record = one({"type": "function_call", "call_id": "c", "name": "f", "arguments": {"x": 1}})
    assert log(record).steps[0].tool_calls[0].arguments == {"x": 1}
    assert set(record.anomalies) == {"arguments_as_object", "unanswered_call"}


def test_an_output_as_parts_is_content():
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "https://example.com/a.png"}]
    record = one(
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": parts},
    )
    assert [part.type for part in log(record).steps[0].observation.results[0].content] == ["text", "image"]


def test_messages_and_calls_of_one_turn_are_one_step_and_a_new_thought_begins_the_next():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    thought = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]}
    steps = log(one(thought, said("let me"), call, thought, said("so"))).steps
    assert [(step.reasoning_content, step.message, len(step.tool_calls or ())) for step in steps] == [
        ("t", "let me", 1), ("t", "so", 0),
    ]  # fmt: skip


@pytest.mark.parametrize("when", [True, -5, 1e300, "2025-01-01", None])
def test_an_odd_time_is_no_timestamp(when):
    assert log(one(said("x"), created_at=when)).steps[0].timestamp is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"object": "response"}, "no_items"),
        ({"object": "response", "input": [], "output": []}, "no_items"),
        ({"object": "response", "input": 7}, "bad_item"),
        ({"object": "response", "input": ["x"]}, "bad_item"),
        ({"object": "response", "output": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "bad_call"),
        ({"object": "response", "input": "x", "metadata": []}, "bad_metadata"),
    ],
)
def test_what_has_no_reading_is_rejected_by_name(body, code):
    (item,) = rows(body)
    assert getattr(item, "code", None) == code


@pytest.mark.parametrize(
    ("body", "owner"),
    [
        ({"id": "chatcmpl-1", "object": "chat.completion", "choices": []}, []),
        ({"input": "x", "output": "y"}, []),
        ({"input": {"messages": []}, "output": [{"type": "tool", "id": "run-1"}]}, []),
        ([{"id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}], []),
        ([{"role": "user", "content": "x"}], []),
        ({"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"input": "x"}}, ["openai_responses"]),
        ({"input": "x", "model": "m", "previous_response_id": None}, ["openai_responses"]),
    ],
)
def test_neighbouring_shapes_have_one_owner(body, owner):
    assert recognise(json.dumps(body).encode(), "x.json") == owner


@pytest.mark.parametrize("metadata", [7, {"ratchet": 7}, {"ratchet": {"unknown": 1}}])
def test_a_wrong_record_costs_none_of_those_that_it_goes_on_from(metadata):
    found = rows(
        response("resp_1", "a", said("1")),
        response("resp_2", "b", said("2"), previous_response_id="resp_1", metadata=metadata),
        response("resp_3", "c", said("3")),
    )
    assert [(item.number, getattr(item, "code", None)) for item in found] == [
        (0, None), (1, "bad_metadata"), (2, None),
    ]  # fmt: skip


def test_a_rejected_record_keeps_its_place():
    found = list(read((SAMPLES / "batch.jsonl").read_bytes(), "x"))
    assert isinstance(found[1], Rejected)
    assert (found[1].number, found[1].raw[:25]) == (1, b'{"id": "batch_req_2", "cu')
