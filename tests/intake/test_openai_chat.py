"""OpenAI-chat logs: calls, results, parts and metadata, with every known quirk kept as an anomaly."""

import json

import pytest
from intake_world import chat

from ratchet.intake.formats import recognise
from ratchet.intake.formats.openai_chat import read, sniff
from ratchet.intake.records import Rejected
from ratchet.intake.validate import trajectory_of


def call(call_id, name="run", arguments="{}"):
    made = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in made.items() if value is not None}


def said(*calls, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def tool(call_id, content, **fields):
    return {"role": "tool", "content": content, **({"tool_call_id": call_id} if call_id else {}), **fields}


def one(*messages, **fields):
    """Read one conversation; returns (trajectory, anomalies)."""
    (record,) = read(json.dumps(chat(*messages, **fields)).encode(), "x.json")
    assert not isinstance(record, Rejected), record.reason
    return trajectory_of(record, tenant="acme", grant_id="g"), set(record.anomalies)


def rejected(body):
    (record,) = read(json.dumps(body).encode(), "x.json")
    assert isinstance(record, Rejected)
    return record.code


def answers(trajectory):
    """Content of the result of each call, by its position among all calls."""
    results = {
        result.source_call_id: result.content
        for step in trajectory.steps
        for result in (step.observation.results if step.observation else ())
    }
    return [results.get(item.tool_call_id) for step in trajectory.steps for item in step.tool_calls or ()]


def test_parallel_calls_answered_in_any_order_keep_their_own_answers():
    log, anomalies = one(said(call("a"), call("b"), call("c")), tool("c", "3"), tool("a", "1"), tool("b", "2"))
    assert answers(log) == ["1", "2", "3"]
    assert anomalies == {"ends_on_result"}


def test_duplicate_ids_are_reissued_and_each_call_has_its_own_answer():
    turns = [message for n in "123" for message in (said(call("same")), tool("same", n))]
    log, anomalies = one(*turns, {"role": "assistant", "content": "done"})
    assert answers(log) == ["1", "2", "3"]
    assert anomalies == {"duplicate_call_id"}
    again = log.steps[1].tool_calls[0]
    assert again.tool_call_id.split(":")[1:] == ["2", "0"]
    assert again.extra["original_call_id"] == "same"


def test_missing_ids_are_issued_and_paired_by_order():
    log, anomalies = one(said(call(None), call(None)), tool(None, "1"), tool(None, "2"))
    assert answers(log) == ["1", "2"]
    assert {"missing_call_id", "result_paired_by_order"} <= anomalies


def test_a_result_that_names_its_call_id_or_a_list_of_them_is_paired():
    log, anomalies = one(said(call("a"), call("b")), tool(None, "2", id="b"), tool(None, "1", tool_call_ids=["a"]))
    assert answers(log) == ["1", "2"]
    assert {"result_names_its_call_id", "call_ids_as_list"} <= anomalies


def test_what_does_not_pair_is_kept_as_an_orphan():
    log, anomalies = one({"role": "user", "content": "x"}, tool("ghost", "boo"))
    (result,) = log.steps[0].observation.results
    assert (result.content, result.source_call_id, result.extra["original_call_id"]) == ("boo", None, "ghost")
    assert "orphan_result" in anomalies


def test_a_log_that_begins_with_a_result_is_kept():
    log, anomalies = one(tool("ghost", "boo"), {"role": "user", "content": "x"})
    assert [step.source for step in log.steps] == ["system", "user"]
    assert "orphan_result" in anomalies


def test_an_unanswered_call_is_noted():
    assert one(said(call("a")))[1] == {"unanswered_call"}


def test_a_second_answer_to_one_call_is_kept_and_noted():
    log, anomalies = one(said(call("a")), tool("a", "1"), tool("a", "2"))
    assert [result.content for result in log.steps[0].observation.results] == ["1", "2"]
    assert "repeated_result" in anomalies


@pytest.mark.parametrize(
    ("given", "arguments", "kept", "anomaly"),
    [
        ('{"x": 1}', {"x": 1}, None, None),
        ({"x": 1}, {"x": 1}, None, "arguments_as_object"),
        ("", {}, "", "empty_arguments"),
        ("{not json", {}, "{not json", "arguments_not_an_object"),
        ("[1]", {}, "[1]", "arguments_not_an_object"),
        ('{"x": NaN}', {}, '{"x": NaN}', "arguments_not_an_object"),
        ('{"x": 1, "x": 2}', {}, '{"x": 1, "x": 2}', "arguments_not_an_object"),
    ],
)
def test_arguments_of_every_kind(given, arguments, kept, anomaly):
    log, anomalies = one(said(call("a", arguments=given)))
    made = log.steps[0].tool_calls[0]
    assert made.arguments == arguments
    assert (made.extra or {}).get("arguments_text") == kept
    assert anomalies == {"unanswered_call"} | ({anomaly} if anomaly else set())


def test_null_content_is_the_empty_message_and_can_be_told_from_it():
    log, _ = one({"role": "assistant", "content": None}, {"role": "assistant", "content": ""})
    assert [step.message for step in log.steps] == ["", ""]
    assert [step.extra for step in log.steps] == [{"openai": {"content": None}}, None]


def test_parts_become_parts_and_unknown_ones_text():
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f1"}},
    ]
    log, anomalies = one({"role": "user", "content": parts})
    assert [part.type for part in log.steps[0].message] == ["text", "image", "audio", "text"]
    assert json.loads(log.steps[0].message[3].text) == parts[3]
    assert anomalies == {"unknown_part"}


def test_legacy_function_call_and_functions_become_calls_and_tools():
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "run", "arguments": '{"x": 1}'}}
    answer = {"role": "function", "name": "run", "content": "ok"}
    log, anomalies = one(legacy, answer, functions=[{"name": "run", "parameters": {}}])
    assert answers(log) == ["ok"]
    assert log.agent.tool_definitions == [{"type": "function", "function": {"name": "run", "parameters": {}}}]
    assert {"legacy_function_call", "legacy_functions"} <= anomalies


def test_tools_as_a_string_are_decoded():
    tools = [{"type": "function", "function": {"name": "run"}}]
    log, anomalies = one({"role": "user", "content": "x"}, tools=json.dumps(tools))
    assert log.agent.tool_definitions == tools
    assert anomalies == {"tools_as_string"}


def test_nothing_else_of_record_and_message_is_lost():
    message = {"role": "developer", "content": "x", "name": "boss", "weight": 0}
    log, _ = one(message, model="m-1", temperature=0.2, metadata={"run": "r7"})
    assert log.agent.model_name == "m-1"
    assert log.extra["openai"] == {"temperature": 0.2, "metadata": {"run": "r7"}}
    assert (log.steps[0].source, log.steps[0].extra) == (
        "system",
        {"openai": {"name": "boss", "weight": 0, "role": "developer"}},
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"messages": []}, "no_messages"),
        ({"messages": [{"role": "wizard", "content": ""}]}, "unknown_role"),
        ({"messages": [{"role": "user", "content": 7}]}, "bad_content"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]}]}, "bad_call"),
        ({"messages": [{"role": "user", "content": "x"}], "tools": "{["}, "bad_tools"),
        ({"messages": [{"role": "user", "content": "x"}], "metadata": {"ratchet": []}}, "bad_metadata"),
        ({"messages": ["hello"]}, "bad_message"),
    ],
)
def test_what_has_no_reading_is_rejected_whole_and_by_name(body, code):
    assert rejected(body) == code


FOREIGN = {
    "swe-agent": {"trajectory": [{"action": "ls", "messages": [{"role": "user"}]}], "history": []},
    "swe-agent history": {"history": [{"role": "system", "content": "x"}]},
    "mini-swe-agent": {"info": {}, "messages": [{"role": "user", "content": "x"}], "trajectory_format": "mini"},
    "tau-bench": [{"task_id": 0, "reward": 1.0, "info": {}, "traj": [{"role": "user", "content": "x"}]}],
    "sharegpt": [{"conversations": [{"from": "human", "value": "x"}]}],
    "preferences": {"prompt": "x", "chosen": [], "rejected": []},
    "spans": {"resourceSpans": []},
    "a number": 7,
}


@pytest.mark.parametrize("form", ["lines", "printed"])
@pytest.mark.parametrize("name", FOREIGN)
def test_other_formats_are_refused_rather_than_misread(name, form):
    body = FOREIGN[name]
    lines = (json.dumps(body) + "\n") * 3
    found = recognise(lines.encode() if form == "lines" else json.dumps(body, indent=2).encode(), "x.json")
    assert "openai_chat" not in found
    assert len(found) < 2


def test_messages_with_an_instance_id_come_in_with_its_task_and_repo():
    body = {"messages": [{"role": "user", "content": "x"}], "instance_id": "pandas-dev__pandas.95280573.pr_53652"}
    assert recognise(json.dumps(body).encode(), "x.jsonl") == ["openai_chat"]
    (record,) = read(json.dumps(body).encode(), "x.jsonl")
    own = trajectory_of(record, tenant="acme", grant_id="g").ratchet
    assert (own.task_id, own.repo, own.issue_id) == (
        body["instance_id"],
        "pandas-dev/pandas",
        "pandas-dev/pandas#53652",
    )


def test_metadata_that_names_the_task_goes_before_the_instance_id():
    body = chat({"role": "user", "content": "x"}, metadata={"ratchet": {"task_id": "t"}}, instance_id="a__b-1")
    (record,) = read(json.dumps(body).encode(), "x.jsonl")
    assert (record.claims["task_id"], record.claims["repo"]) == ("t", "a/b")


def stored(**fields):
    choice = {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}
    return {"choices": [choice], "usage": usage, **fields}


def test_the_first_choice_of_a_stored_completion_is_the_last_step_with_its_usage():
    log, anomalies = one({"role": "user", "content": "hi"}, **stored())
    assert [step.message for step in log.steps] == ["hi", "hello"]
    metrics = log.steps[1].metrics
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (3, 1, 2)
    assert log.steps[1].extra == {"openai": {"finish_reason": "stop"}}
    assert anomalies == set()


def test_request_and_response_side_by_side_are_one_conversation():
    body = {"request": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}}
    body |= {"response": stored(id="chatcmpl-1"), "latency_ms": 7}
    assert recognise(json.dumps(body).encode(), "x.json") == ["openai_chat"]
    (record,) = read(json.dumps(body).encode(), "x.json")
    log = trajectory_of(record, tenant="acme", grant_id="g")
    assert [step.message for step in log.steps] == ["hi", "hello"]
    assert log.agent.model_name == "m"
    kept = log.extra["openai"]
    assert (kept["temperature"], kept["latency_ms"], kept["response"]["id"]) == (0, 7, "chatcmpl-1")


def test_a_choice_that_the_messages_end_with_is_not_said_twice():
    log, _ = one({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, **stored())
    assert [step.message for step in log.steps] == ["hi", "hello"]


def test_other_choices_are_kept_beside_and_noted():
    second = {"index": 1, "message": {"role": "assistant", "content": "hey"}}
    log, anomalies = one({"role": "user", "content": "hi"}, choices=[*stored()["choices"], second])
    assert log.extra["openai"]["other_choices"] == [second]
    assert anomalies == {"other_choices"}


def test_a_blank_tools_string_is_no_tools():
    assert one({"role": "user", "content": "x"}, tools="")[0].agent.tool_definitions is None


def test_naive_and_mixed_times_are_kept_as_they_are_and_noted():
    times = ("2026-01-02T03:04:05", "2026-01-02T03:04:05Z", "yesterday")
    log, anomalies = one(*({"role": "user", "content": "x", "timestamp": time} for time in times))
    assert [step.timestamp for step in log.steps] == list(times)
    assert anomalies == {"naive_timestamp", "mixed_timestamps", "odd_timestamp"}


def test_a_part_that_is_a_string_is_text():
    log, anomalies = one({"role": "user", "content": ["see"]})
    assert log.steps[0].message[0].text == "see"
    assert anomalies == {"part_as_string"}


def test_it_recognises_its_own_even_behind_a_broken_line_and_when_the_head_is_cut():
    line = json.dumps(chat(metadata={"task_id": "x"}))
    assert sniff(f'{{"messages": [{{"role\n{line}\n{line}\n'.encode(), "x.jsonl")
    assert sniff(json.dumps(chat({"role": "user", "content": "x" * 5000})).encode()[:100], "x.json")
    assert recognise(json.dumps([chat()], indent=1).encode("utf-16"), "x.json") == ["openai_chat"]
