"""OpenInference spans: OTLP, rows of Phoenix in every form, and the quirks that they have."""

from __future__ import annotations

import pytest
from span_files import SAMPLES, answers, only, read_sample, talk

from ratchet.intake.formats import recognise

WEATHER = [("weather", {"city": "Bern"}, "sun"), ("weather", {"city": "Chur"}, "rain")]


def inference(name):
    return only("openinference", name)


@pytest.mark.parametrize("name", ["otlp-loop.jsonl", "phoenix-rows.jsonl", "phoenix-page.json"])
def test_flattened_nested_and_listed_attributes_give_the_same_conversation(name):
    log, anomalies, _ = inference(name)
    assert talk(log) == [
        ("user", "Weather in Bern and Chur?"),
        ("agent", ""),
        ("agent", "Sun in Bern, rain in Chur."),
    ]
    assert answers(log) == WEATHER
    assert not anomalies


def test_usage_cost_tools_session_and_agent_are_kept():
    log, _, _ = inference("otlp-loop.jsonl")
    assert log.steps[2].metrics.model_dump(exclude_none=True) == {
        "prompt_tokens": 22,
        "completion_tokens": 5,
        "cached_tokens": 16,
        "cost_usd": 0.0012,
        "extra": {"token_count.total": 27, "cost.prompt": 0.001},
    }
    assert (log.session_id, log.agent.name, log.agent.model_name) == ("s-1", "meteo", "gpt-4o")
    assert [tool["function"]["name"] for tool in log.agent.tool_definitions] == ["weather"]


def test_other_spans_are_kept_and_repeated_histories_are_counted():
    log, _, record = inference("otlp-loop.jsonl")
    spans = {span["name"]: span for span in log.extra["openinference"]["spans"]}
    document = spans["retriever"]["attributes"]["retrieval.documents"][0]["document"]
    assert document["content"] == "Bern lies at 540 m."
    assert spans["agent"]["attributes"]["output.value"] == "Sun in Bern, rain in Chur."
    assert "input.value" not in spans["RunnableSequence"]["attributes"]
    assert sorted(record.dropped) == ["llm.input.value", "llm.output.value", "other.input.value"]


def test_a_data_frame_with_times_in_milliseconds_is_read():
    log, anomalies, _ = inference("data-frame.json")
    assert log.steps[1].timestamp == "2026-01-01T00:00:00Z"
    assert [name for name, _, _ in answers(log)] == ["weather", "weather"]
    assert dict(anomalies) == {"unanswered_call": 2}


def test_the_example_of_the_specification_is_read_and_its_missing_ids_are_issued():
    log, anomalies, _ = inference("spec-example.jsonl")
    assert answers(log) == [("multiply", {"a": 23}, "2001")]
    assert dict(anomalies) == {"root_missing": 1, "missing_call_id": 1, "result_paired_by_order": 1}


def test_a_legacy_function_call_becomes_a_call():
    assert answers(inference("quirk-function-call.json").trajectory) == [("run", {"n": 1}, "1")]


def test_empty_arguments_are_no_arguments():
    log, anomalies, _ = inference("quirk-empty-arguments.json")
    assert answers(log) == [("run", {}, None)]
    assert dict(anomalies) == {"empty_arguments": 1, "unanswered_call": 1}


def test_contents_become_parts_and_reasoning():
    log, anomalies, _ = inference("quirk-contents.json")
    assert [part.type for part in log.steps[0].message] == ["text", "image"]
    assert (log.steps[1].message, log.steps[1].reasoning_content) == ("It is an a.", "An a.")
    assert not anomalies


def test_a_model_call_with_values_alone_is_read_from_them():
    log, anomalies, record = inference("quirk-values-only.json")
    assert talk(log) == [("user", "Hi"), ("agent", "Hello")]
    assert (dict(anomalies), record.dropped) == ({}, ())


def test_a_trace_without_model_calls_is_read_from_its_agent():
    log, anomalies, _ = inference("quirk-agent-values.json")
    assert talk(log) == [("user", "Count to 1"), ("agent", ""), ("agent", "1")]
    assert answers(log) == [("count", {}, "1")]
    assert log.steps[1].tool_calls[0].extra["arguments_text"] == "{'to': 1}"
    assert {"messages_of_the_root", "tool_span_without_call"} <= set(anomalies)


def test_a_tool_that_answers_with_a_message_names_its_call():
    log, anomalies, _ = inference("quirk-tool-message.json")
    assert answers(log) == [("run", {}, "fine")]
    assert dict(anomalies) == {"result_of_a_span": 1, "ends_on_result": 1}


def test_a_naive_time_stays_as_it_is():
    log, anomalies, _ = inference("quirk-naive-times.jsonl")
    assert log.steps[1].timestamp == "2026-01-01T00:00:01"
    assert dict(anomalies) == {"naive_timestamp": 1}


def test_duplicate_and_missing_ids_keep_their_own_answers():
    log, anomalies, _ = inference("quirk-duplicate-and-missing-ids.json")
    assert [result for _, _, result in answers(log)] == ["1", "2", "3"]
    assert {"duplicate_call_id", "missing_call_id", "copied_context"} <= set(anomalies)


def test_traces_of_a_session_that_continue_each_other_are_joined():
    log, _, _ = inference("session.jsonl")
    assert [text for _, text in talk(log)] == ["Go", "Gone.", "Back", "Here."]
    assert log.session_id == "s-9"


def test_a_bad_row_costs_no_good_one():
    logs, rejected = read_sample("openinference", "quirk-broken-rows.jsonl")
    assert [talk(log)[-1][1] for log, _, _ in logs] == ["A"]
    assert [item.code for item in rejected] == ["bad_span", "truncated"]


def test_both_byte_orders_of_utf_16_are_recognised():
    text = (SAMPLES / "openinference" / "otlp-loop.jsonl").read_text(encoding="utf-8")
    for encoding, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        assert recognise(mark + text.encode(encoding), "x.jsonl") == ["openinference"]
