"""Langfuse exports: traces, downloads, pages, tables of observations, and the messages of every provider in them."""

from __future__ import annotations

import pytest
from span_files import answers, only, read_sample, talk

REFUND = [("refund", {"order": 7}, '{"ok": true}')]
TALK = [("system", "You handle refunds."), ("user", "Refund order 7"), ("agent", ""), ("agent", "Refunded.")]


def fuse(name):
    return only("langfuse", name)


@pytest.mark.parametrize(
    "name",
    [
        "trace.json",
        "trace-download.json",
        "traces-page.json",
        "observations.jsonl",
        "observations-page.json",
        "blob-observations.jsonl",
    ],
)
def test_every_shape_of_export_gives_the_same_conversation(name):
    log, anomalies, _ = fuse(name)
    assert talk(log) == TALK
    assert answers(log) == REFUND
    assert (log.trajectory_id, log.agent.name, log.agent.model_name) == ("lf-trace-1", "refunds", "gpt-4o")
    assert dict(anomalies) == ({"naive_timestamp": 1} if name.startswith("blob") else {})


def test_the_trace_gives_session_metadata_scores_and_task():
    log, _, record = fuse("trace.json")
    assert log.session_id == "lf-s"
    assert log.ratchet.task_id == "refund-7"
    (above, agent) = log.extra["langfuse"]["spans"]
    assert above["scores"][0]["name"] == "helpful"
    assert (above["metadata"], above["tags"]) == ({"channel": "mail"}, ["prod"])
    assert above["metrics"] == {"cost_usd": 0.004}
    assert agent["kind"] == "agent"
    assert sorted(record.dropped) == ["agent.input", "agent.output", "other.input", "other.output"]


def test_usage_and_cost_are_read_from_every_version_of_their_fields():
    old = fuse("trace.json").trajectory.steps[2].metrics.model_dump(exclude_none=True)
    assert old.pop("extra") == {"usage.total": 36}
    assert old == {"prompt_tokens": 30, "completion_tokens": 6, "cost_usd": 0.002}
    new = fuse("blob-observations.jsonl").trajectory.steps[2].metrics.model_dump(exclude_none=True)
    assert new == {**old, "cached_tokens": 8, "extra": {"usage.total": 36, "cost.input": 0.001, "cost.output": 0.001}}


def test_traces_on_lines_of_their_own_are_trajectories_of_their_own():
    logs, rejected = read_sample("langfuse", "traces.jsonl")
    assert [log.trajectory_id for log, _, _ in logs] == ["lf-trace-1", "lf-trace-2"]
    assert rejected == []


def test_calls_and_tools_are_taken_from_the_columns_of_later_versions():
    log, _, _ = fuse("quirk-calls-in-columns.json")
    assert answers(log) == [("refund", {"order": 7}, None)]
    (tool,) = log.agent.tool_definitions
    assert tool["function"] == {"name": "refund", "description": "Refund", "parameters": {"type": "object"}}


def test_a_traces_table_gives_question_and_answer():
    log, anomalies, _ = fuse("traces-table.json")
    assert talk(log) == [("user", "Hi"), ("agent", "Hello")]
    assert dict(anomalies) == {"messages_of_the_root": 1}


def test_the_traces_of_a_session_are_joined_where_they_continue_each_other():
    assert [text for _, text in talk(fuse("session.json").trajectory)] == ["One", "1", "Two", "2"]


def test_anthropic_blocks_become_text_reasoning_calls_and_results():
    log, anomalies, _ = fuse("quirk-anthropic.json")
    assert talk(log) == [("system", "Be brief."), ("user", "List"), ("agent", "I look."), ("agent", "a.txt")]
    assert answers(log) == [("ls", {"path": "."}, "a.txt")]
    assert log.agent.tool_definitions[0]["function"] == {"name": "ls", "parameters": {"type": "object"}}
    assert log.steps[2].reasoning_content == "Look first."
    assert log.steps[2].extra["langfuse"]["parts"] == [{"part": 0, "type": "thinking", "signature": "sig"}]
    assert not anomalies


def test_arguments_as_an_object_are_kept_and_noted():
    log, anomalies, _ = fuse("quirk-arguments-as-object.json")
    assert answers(log) == [("refund", {"order": 7}, None)]
    assert anomalies["arguments_as_object"] == 1


def test_a_failed_call_and_its_retry_are_one_conversation():
    log, anomalies, _ = fuse("quirk-null-output.json")
    assert talk(log) == [("user", "Refund order 7"), ("agent", "Refunded.")]
    assert log.subagent_trajectories is None
    assert not anomalies
    (failed,) = [span for span in log.extra["langfuse"]["spans"] if span.get("level") == "ERROR"]
    assert failed["statusMessage"] == "rate limited"


def test_prompts_and_answers_that_are_plain_text_are_messages():
    assert talk(fuse("quirk-text-prompt.json").trajectory) == [("user", "Say hi"), ("agent", "Hi")]


def test_calls_under_additional_kwargs_are_read():
    log, anomalies, _ = fuse("quirk-langchain.json")
    assert answers(log) == [("run", {}, "ok")]
    assert dict(anomalies) == {"copied_context": 1}


def test_tools_that_are_a_string_are_decoded():
    log, anomalies, _ = fuse("quirk-string-tools.json")
    assert log.agent.tool_definitions[0]["function"]["name"] == "refund"
    assert dict(anomalies) == {"tools_as_string": 1}


def test_ids_that_are_double_missing_misplaced_or_of_nobody():
    log, anomalies, _ = fuse("quirk-ids.json")
    assert answers(log) == [("a", {}, "1"), ("b", {}, "2"), ("c", {}, "3")]
    assert dict(anomalies) == {
        "copied_context": 1,
        "duplicate_call_id": 1,
        "missing_call_id": 1,
        "empty_arguments": 1,
        "result_names_its_call_id": 1,
        "call_ids_as_list": 1,
        "result_paired_by_order": 1,
        "orphan_result": 1,
    }
    assert log.steps[1].observation.results[-1].extra["original_call_id"] == "ghost"


def test_a_bad_line_costs_no_good_one():
    logs, rejected = read_sample("langfuse", "quirk-broken-lines.jsonl")
    assert [log.trajectory_id for log, _, _ in logs] == ["lf-trace-1"]
    assert [item.code for item in rejected] == ["bad_span", "truncated"]
