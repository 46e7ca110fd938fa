"""LangSmith exports: runs in lines, pages and trees, and every serialisation of LangChain's messages."""

from __future__ import annotations

import pytest
from span_files import answers, only, read_sample, talk

REFUND = [("refund", {"order": 7}, '{"ok": true}')]
TALK = [("system", "You handle refunds."), ("user", "Refund order 7"), ("agent", ""), ("agent", "Refunded.")]


def smith(name):
    return only("langsmith", name)


@pytest.mark.parametrize("name", ["runs.jsonl", "runs-page.json", "tree.json", "order-only.json"])
def test_lines_pages_trees_and_dotted_orders_give_the_same_conversation(name):
    log, anomalies, _ = smith(name)
    assert talk(log) == TALK
    assert answers(log) == REFUND
    assert (log.session_id, log.agent.model_name) == ("th-1", "gpt-4o")
    assert dict(anomalies) == {"naive_timestamp": 1}


def test_usage_of_the_message_goes_to_the_step():
    log, _, _ = smith("runs.jsonl")
    assert log.steps[2].metrics.model_dump(exclude_none=True) == {
        "prompt_tokens": 30,
        "completion_tokens": 6,
        "cached_tokens": 8,
        "extra": {"total_tokens": 36},
    }
    assert log.steps[2].extra["langsmith"]["invocation_params"] == {"model": "gpt-4o", "temperature": 0.1}
    assert log.steps[2].extra["langsmith"]["response_metadata"] == {"finish_reason": "tool_calls"}


def test_a_tool_run_is_kept_beside_the_result_and_other_runs_in_extra():
    log, _, record = smith("runs.jsonl")
    (result,) = log.steps[2].observation.results
    assert result.extra["langsmith"]["span"]["span_id"] == "00000002-0000-4000-8000-000000000000"
    assert result.extra["langsmith"]["status"] == "success"
    assert [span["name"] for span in log.extra["langsmith"]["spans"]] == ["LangGraph"]
    assert record.dropped == ("other.inputs", "other.outputs")


def test_openai_shaped_runs_are_read_with_their_cost_and_task():
    log, anomalies, _ = smith("openai.json")
    assert answers(log) == [("refund", {"order": 7}, None)]
    assert log.steps[2].metrics.model_dump(exclude_none=True) == {
        "prompt_tokens": 30,
        "completion_tokens": 6,
        "cost_usd": 0.002,
    }
    assert log.steps[2].extra["langsmith"]["response"] == {"id": "chatcmpl-1", "usage": {"prompt_tokens": 30}}
    assert log.ratchet.task_id == "refund-7"
    assert dict(anomalies) == {"naive_timestamp": 1, "unanswered_call": 1}


def test_messages_by_type_are_read_with_and_without_data():
    log, _, _ = smith("quirk-typed-messages.json")
    assert talk(log) == [("user", "Hi"), ("agent", "Hello"), ("user", "And?"), ("agent", "Bye")]


def test_prompts_of_models_before_chat_are_read():
    assert talk(smith("quirk-prompts.json").trajectory) == [("user", "Say hi"), ("agent", "Hi")]


def test_double_missing_and_invalid_calls_are_kept():
    log, anomalies, _ = smith("quirk-broken-calls.json")
    calls = log.steps[1].tool_calls
    assert [(call.function_name, call.arguments) for call in calls] == [
        ("a", {}), ("a", {"n": 2}), ("a", {"n": 3}), ("b", {}),
    ]  # fmt: skip
    assert calls[3].extra["arguments_text"] == "{oops"
    assert calls[3].extra["langsmith"] == {"error": "no JSON"}
    assert {"duplicate_call_id", "missing_call_id", "arguments_not_an_object"} <= set(anomalies)


def test_the_error_of_a_tool_is_what_it_gave_back():
    log, anomalies, _ = smith("quirk-tool-error.json")
    assert answers(log) == [("refund", {"order": 7}, "ToolException('no such order')")]
    assert {"result_of_a_span", "ends_on_result"} <= set(anomalies)


def test_a_trace_of_chains_alone_is_read_from_its_root():
    log, anomalies, _ = smith("quirk-chain-only.json")
    assert talk(log) == [("user", '{"question":"Hi"}'), ("agent", '{"answer":"Hello"}')]
    assert anomalies["messages_of_the_root"] == 1


def test_naive_and_zoned_times_are_ordered_as_utc_and_noted():
    log, anomalies, _ = smith("quirk-mixed-times.jsonl")
    assert [step.timestamp for step in log.steps[2:]] == ["2026-01-01T00:00:01", "2026-01-01T01:00:05+01:00"]
    assert {"naive_timestamp", "mixed_timestamps", "root_missing"} == set(anomalies)


def test_the_traces_of_a_thread_are_joined_where_they_continue_each_other():
    log, _, _ = smith("thread.jsonl")
    assert [text for _, text in talk(log)] == ["Refund order 7", "Refunded.", "Thanks", "Welcome."]
    assert log.session_id == "th-2"


def test_a_bad_line_costs_no_good_one():
    logs, rejected = read_sample("langsmith", "quirk-broken-lines.jsonl")
    assert [talk(log)[-1][0] for log, _, _ in logs] == ["agent"]
    assert [item.code for item in rejected] == ["bad_span", "not_finite", "truncated"]
