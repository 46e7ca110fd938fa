"""OpenTelemetry GenAI spans: every generation of the conventions, and the quirks of real exports."""

from __future__ import annotations

import json

import pytest
from intake_world import world
from span_files import SAMPLES, answers, only, read_sample, talk

from ratchet.contracts.trajectory import ContentPart
from ratchet.intake.formats import recognise
from ratchet.intake.formats.otel_genai import read


def genai(name):
    return only("otel_genai", name)


def test_a_loop_of_two_model_calls_becomes_one_trajectory_with_the_last_history():
    log, anomalies, record = genai("attributes-loop.json")
    assert talk(log) == [
        ("system", "You count stock."),
        ("user", "How many lamps are left?"),
        ("agent", ""),
        ("agent", "Three lamps and seven bulbs."),
    ]
    assert answers(log) == [("get_stock", {"article": "lamp"}, '{"left":3}'), ("get_stock", {"article": "bulb"}, "7")]
    assert not anomalies
    assert log.trajectory_id == "00000000000000000000000000000001"
    assert (log.agent.name, log.agent.version, log.agent.model_name) == ("stock", "2", "gpt-4.1-2025-04-14")
    assert [tool["function"]["name"] for tool in log.agent.tool_definitions] == ["get_stock"]
    assert log.extra["otel_genai"]["resources"] == [{"service.name": "shop-agent", "service.version": "1.4.0"}]
    assert record.dropped == ("agent.messages",)


def test_what_a_model_call_says_about_itself_stands_on_its_step():
    log, _, _ = genai("attributes-loop.json")
    first, last = log.steps[2], log.steps[3]
    assert (first.timestamp, last.timestamp) == ("2026-01-01T00:00:01Z", "2026-01-01T00:00:06Z")
    assert last.metrics.model_dump(exclude_none=True) == {
        "prompt_tokens": 102,
        "completion_tokens": 12,
        "cached_tokens": 64,
    }
    assert last.reasoning_content == "3 and 7"
    kept = last.extra["otel_genai"]
    assert (kept["span_id"], kept["finish_reason"]) == ("0000000000000002", "stop")
    assert kept["attributes"]["gen_ai.request.model"] == "gpt-4.1"


def test_a_tool_span_is_kept_beside_the_result_of_its_call():
    log, _, _ = genai("attributes-loop.json")
    by_call = {result.source_call_id: result for result in log.steps[2].observation.results}
    span = by_call["call_1"].extra["otel_genai"]["span"]
    assert (span["span_id"], span["started"]) == ("000000000000000b", "2026-01-01T00:00:03Z")
    assert "result" not in span
    assert by_call["call_2"].extra is None


def test_lines_in_any_order_give_the_same_trajectory_as_one_document():
    assert genai("attributes-loop.jsonl").trajectory.digest == genai("attributes-loop.json").trajectory.digest


def test_ratchets_own_attributes_and_the_wall_clock_are_taken_over():
    ratchet = genai("attributes-loop.json").trajectory.ratchet
    assert (ratchet.task_id, ratchet.latency_s) == ("stock-17", 9.0)


@pytest.mark.parametrize(
    "name", ["span-events.json", "log-records.jsonl", "log-records-alone.json", "openllmetry.json"]
)
def test_older_generations_give_the_same_conversation(name):
    log, anomalies, _ = genai(name)
    assert talk(log)[-3:] == [("user", "List files"), ("agent", ""), ("agent", "a.txt")]
    assert [(tool, result) for tool, _, result in answers(log)] == [("ls", "a.txt")]
    assert dict(anomalies) == ({"span_missing": 2} if "alone" in name else {})


@pytest.mark.parametrize("name", ["details-event.json", "content-events.json", "llm-prompts.json"])
def test_the_newest_and_the_oldest_events_are_read(name):
    assert talk(genai(name).trajectory) == [("user", "Hi"), ("agent", "Hello")]


def test_openllmetry_gives_tools_usage_and_workflow():
    log, _, _ = genai("openllmetry.json")
    assert log.agent.name == "files"
    (tool,) = log.agent.tool_definitions
    assert tool["function"] == {"name": "ls", "description": "List", "parameters": {"type": "object"}}
    assert log.steps[-1].metrics.model_dump(exclude_none=True) == {
        "prompt_tokens": 20,
        "completion_tokens": 4,
        "extra": {"total_tokens": 24},
    }


def test_content_blocks_inside_events_are_read():
    log, anomalies, _ = genai("content-blocks.json")
    assert talk(log) == [("user", "Go"), ("agent", "I look."), ("agent", "a.txt")]
    assert answers(log) == [("ls", {"p": 1}, "a.txt")]
    assert not anomalies


def test_the_spans_of_the_vercel_ai_sdk_are_read():
    log, anomalies, record = genai("vercel.json")
    assert talk(log) == [("system", "Be brief."), ("user", "List files"), ("agent", ""), ("agent", "a.txt")]
    assert answers(log) == [("ls", {"path": "."}, "a.txt")]
    assert [step.metrics.prompt_tokens for step in log.steps[2:]] == [12, 20]
    assert log.agent.tool_definitions == [
        {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
    ]
    assert (log.session_id, dict(anomalies), record.dropped) == ("v-s", {}, ("agent.messages",))
    assert "result" not in log.steps[2].observation.results[0].extra["otel_genai"]["span"]


def test_events_that_are_folded_into_one_attribute_are_read():
    log, anomalies, record = genai("events-attribute.json")
    assert answers(log) == [("ls", {"path": "."}, "a.txt")]
    assert talk(log)[-1] == ("agent", "a.txt")
    assert dict(anomalies) == {"copied_context": 1, "arguments_as_object": 1}
    assert record.dropped == ()


def test_spans_of_both_conventions_in_one_source_are_read():
    logs, rejected = read_sample("otel_genai", "mixed-with-openinference.json")
    assert [talk(log)[-1] for log, _, _ in logs] == [("agent", "x"), ("agent", "Gone")]
    assert rejected == []


@pytest.mark.parametrize(
    ("name", "arguments", "anomalies"),
    [
        ("quirk-arguments-as-string.json", {"n": 1}, {}),
        ("quirk-empty-arguments.json", {}, {"empty_arguments": 1}),
        ("quirk-arguments-not-json.json", {}, {"arguments_not_an_object": 1}),
    ],
)
def test_arguments_of_every_kind(name, arguments, anomalies):
    log, found, _ = genai(name)
    assert answers(log) == [("run", arguments, "1")]
    assert dict(found) == anomalies


def test_arguments_that_are_no_json_are_kept_as_text():
    call = genai("quirk-arguments-not-json.json").trajectory.steps[1].tool_calls[0]
    assert call.extra["arguments_text"] == "{n: 1"


def test_missing_ids_are_issued_and_paired_by_order():
    log, anomalies, _ = genai("quirk-missing-ids.json")
    assert [result for _, _, result in answers(log)] == ["1", "2"]
    assert dict(anomalies) == {"missing_call_id": 2, "result_paired_by_order": 2}
    assert log.steps[1].tool_calls[1].tool_call_id == f"{log.trajectory_id}:2:1"


def test_duplicate_ids_are_reissued_and_each_call_keeps_its_own_answer():
    log, anomalies, _ = genai("quirk-duplicate-ids.json")
    assert [result for _, _, result in answers(log)] == ["1", "2", "3"]
    assert dict(anomalies) == {"duplicate_call_id": 2}
    assert log.steps[2].tool_calls[0].extra["original_call_id"] == "same"


def test_a_tool_span_gives_the_result_that_the_messages_lack():
    log, anomalies, _ = genai("quirk-ends-on-a-tool.json")
    assert answers(log) == [("run", {}, "ok")]
    assert dict(anomalies) == {"result_of_a_span": 1, "ends_on_result": 1}


def test_a_tool_that_no_call_explains_is_a_step_without_a_model_at_its_time():
    log, anomalies, record = genai("quirk-tool-without-call.json")
    made = [(step.tool_calls[0].function_name if step.tool_calls else None) for step in log.steps]
    assert made == [None, "warm_up", None, "log"]
    assert [step.llm_call_count for step in log.steps] == [None, 0, None, 0]
    assert anomalies["tool_span_without_call"] == 2
    inner = [span["name"] for span in record.document["extra"]["otel_genai"]["spans"]]
    assert "execute_tool write" in inner, "a tool inside a tool is a detail of it"


def test_parts_become_parts_and_unknown_ones_text():
    log, anomalies, _ = genai("quirk-parts.json")
    parts = log.steps[0].message
    assert all(isinstance(part, ContentPart) for part in parts)
    assert [part.type for part in parts] == ["text", "image", "image", "audio", "text"]
    assert json.loads(parts[4].text) == {"type": "file", "modality": "document", "file_id": "f-1"}
    assert dict(anomalies) == {"unknown_part": 1}


def test_what_was_said_before_the_trace_is_copied_context():
    log, anomalies, _ = genai("quirk-copied-context.json")
    assert [bool(step.is_copied_context) for step in log.steps] == [True, True, False, False]
    assert dict(anomalies) == {"copied_context": 1}


def test_a_changed_system_prompt_is_a_step_where_it_changed():
    log, anomalies, _ = genai("quirk-system-changes.json")
    assert [source for source, _ in talk(log)] == ["system", "user", "agent", "system", "agent"]
    assert dict(anomalies) == {"system_changed": 1}


def test_a_compacted_history_is_embedded_and_what_it_shares_is_copied():
    log, anomalies, _ = genai("quirk-compaction.json")
    assert len(log.steps) == 4
    (later,) = log.subagent_trajectories
    assert talk(later)[-1] == ("agent", "Done.")
    assert [bool(step.is_copied_context) for step in later.steps] == [True, False, False]
    assert dict(anomalies) == {"separate_history": 1}


def test_a_sub_agent_is_embedded_and_the_result_that_it_gave_refers_to_it():
    log, anomalies, _ = genai("sub-agent.json")
    assert (log.agent.name, len(log.steps)) == ("lead", 3), "the main chain is under fewer agents, though it is shorter"
    (finder,) = log.subagent_trajectories
    assert (finder.agent.name, len(finder.steps)) == ("finder", 4)
    (result,) = log.steps[1].observation.results
    assert [ref.trajectory_id for ref in result.subagent_trajectory_ref] == [finder.trajectory_id]
    assert [call for call, _, _ in answers(finder)] == ["grep", "grep"]
    assert not anomalies


def test_a_retry_keeps_both_answers_and_the_last_one_counts():
    log, anomalies, _ = genai("quirk-retry.json")
    assert talk(log) == [("user", "Go"), ("agent", "Yes.")]
    assert talk(log.subagent_trajectories[0]) == [("user", "Go"), ("agent", "No.")]
    assert dict(anomalies) == {"separate_history": 1}


def test_of_several_answers_the_one_that_goes_on_counts_and_the_others_are_kept():
    log, anomalies, _ = genai("quirk-several-choices.json")
    assert talk(log) == [("user", "Go"), ("agent", "B"), ("user", "More"), ("agent", "C")]
    ((other,),) = log.steps[1].extra["otel_genai"]["other_choices"]
    assert other["content"] == "A"
    assert dict(anomalies) == {"several_choices": 1}


def test_a_history_of_results_alone_continues_the_call_that_waits_for_them():
    log, anomalies, _ = genai("quirk-partial-history.json")
    assert answers(log) == [("run", {}, "ok")]
    assert dict(anomalies) == {"partial_history": 1}


def test_traces_of_one_conversation_are_joined_where_they_continue_each_other():
    (other, joined), _ = read_sample("otel_genai", "conversation.jsonl")
    assert talk(joined.trajectory) == [("user", "One"), ("agent", "1"), ("user", "Two"), ("agent", "2")]
    assert not any(step.is_copied_context for step in joined.trajectory.steps)
    assert talk(other.trajectory) == [("user", "Else"), ("agent", "E")]
    assert {joined.trajectory.session_id, other.trajectory.session_id} == {"conv-1"}
    assert len(joined.trajectory.extra["otel_genai"]["trace_ids"]) == 2


def test_a_trace_without_its_root_is_stored_and_says_so():
    log, anomalies, _ = genai("quirk-root-missing.json")
    assert len(log.steps) == 4
    assert dict(anomalies) == {"root_missing": 1}


def test_a_span_that_was_exported_twice_counts_once():
    log, anomalies, _ = genai("quirk-repeated-span.jsonl")
    assert len(log.steps) == 2
    assert dict(anomalies) == {"repeated_span": 1}


def test_numbers_enumerations_and_ids_are_read_in_every_form_the_encoding_allows():
    log, _, _ = genai("quirk-numbers-and-enums.json")
    assert log.steps[1].timestamp == "2026-01-01T00:00:01Z"
    assert log.steps[1].metrics.model_dump(exclude_none=True) == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "extra": {"cost_usd": "NaN"},
    }
    kept = log.steps[1].extra["otel_genai"]
    assert (kept["span_id"], kept["status"]) == ("abcdef0123456789", "OK")


def test_lines_end_at_line_feeds_alone():
    logs, rejected = read_sample("otel_genai", "quirk-line-ends.jsonl")
    assert [talk(log)[-1][1] for log, _, _ in logs] == ["a\u2028b\u0085c", "x"]
    assert rejected == []


def test_a_bad_line_costs_no_good_one():
    logs, rejected = read_sample("otel_genai", "quirk-broken-lines.jsonl")
    assert [talk(log)[-1][1] for log, _, _ in logs] == ["a", "d"]
    assert [item.code for item in rejected] == ["not_finite", "duplicate_key", "truncated"]
    data = (SAMPLES / "otel_genai" / "quirk-broken-lines.jsonl").read_bytes()
    assert all(data[item.offset :].startswith(item.raw) for item in rejected)


def test_utf_16_is_read():
    log, anomalies, _ = genai("quirk-utf16.json")
    assert talk(log)[-1] == ("agent", "Grüße")
    assert dict(anomalies) == {"utf16": 1}


def test_a_trace_of_which_one_span_has_no_reading_is_rejected_whole():
    logs, rejected = read_sample("otel_genai", "quirk-bad-messages.json")
    assert [(item.code, item.number) for item in rejected] == [("bad_messages", 0)]
    assert [talk(log)[-1][1] for log, _, _ in logs] == ["z"]


def test_a_trace_without_content_is_rejected_by_name():
    logs, rejected = read_sample("otel_genai", "quirk-no-content.json")
    assert (logs, [item.code for item in rejected]) == ([], ["no_messages"])


def test_an_export_of_another_shape_is_rejected_whole():
    data = (
        b'{"resourceSpans": [{"scopeSpans": {"spans": []}}]}\n{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}\n'
    )
    assert [item.code for item in read(data, "x.jsonl")] == ["not_otlp", "bad_span"]


def test_spans_without_any_of_the_conventions_are_not_recognised():
    data = b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "a1", "spanId": "b1", "name": "GET /"}]}]}]}'
    assert recognise(data, "x.json") == []


@pytest.mark.parametrize(
    "export", ['{"resourceSpans": [[1]]}', '{"resourceSpans": [{"scopeSpans": [2]}]}', '{"resourceSpans": [{}]}']
)
def test_an_export_without_a_span_is_set_aside_and_not_passed_over(tmp_path, export):
    home = world(tmp_path)
    report = home.ingest(home.land("export.json", export.encode()), format="otel_genai")
    assert report.stored == 0
    assert report.reasons == {"not_otlp": 1}
