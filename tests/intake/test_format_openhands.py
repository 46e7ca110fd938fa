"""OpenHands: both generations of events, streams and evaluation records, and what is no part of the conversation."""

import json

import pytest
from log_samples import SAMPLES, calls, log, logs, noted, plain, raw, recognised, rejected

FORMAT = "openhands"
FILES = sorted(path.name for path in (SAMPLES / FORMAT).iterdir())


@pytest.mark.parametrize("name", FILES)
def test_streams_and_records_of_both_generations_are_recognised(name):
    assert recognised(FORMAT, name) == [FORMAT]
    assert recognised(FORMAT, name, raw(FORMAT, name)[:2500]) == [FORMAT]
    if not name.endswith(".jsonl"):
        assert recognised(FORMAT, name, json.dumps(plain(FORMAT, name)).encode()) == [FORMAT]


@pytest.mark.parametrize(
    "body",
    [
        [{"action": "ls", "observation": "x", "response": "y"}],
        {"id": "1", "kind": "MessageEvent", "source": "user", "llm_message": {}},
        [{"kind": "birthday", "source": "user"}],
        {"history": [{"role": "user", "agent": "main"}], "info": {}},
        {"trajectory": [{"role": "user", "text": "x"}]},
    ],
)
def test_what_only_looks_like_it_is_not_recognised(body):
    assert FORMAT not in recognised(FORMAT, "x.json", json.dumps(body).encode())


def test_calls_of_one_response_are_one_step_and_answers_find_them_in_any_order():
    record, trajectory = log(FORMAT, "stream.json")
    assert [step.source for step in trajectory.steps] == ["system", "user", "agent", "agent", "user", "agent"]
    step = trajectory.steps[2]
    assert (step.message, step.reasoning_content) == ("Both at once.", "Look first.")
    assert [(name, answer) for name, _, answer in calls(trajectory)] == [
        ("execute_bash", "half.py"),
        ("str_replace_editor", "1\tdef half(x):\n2\t    return x // 2\n"),
        ("think", "Your thought has been logged."),
        ("finish", None),
    ]
    assert noted(record) == {"naive_timestamp": 1, "unanswered_call": 1}


def test_what_the_model_wrote_is_taken_and_what_the_runtime_made_of_it_stands_beside():
    _, trajectory = log(FORMAT, "stream.json")
    view = trajectory.steps[2].tool_calls[1]
    assert view.arguments == {"command": "view", "path": "/w/half.py"}
    event = view.extra[FORMAT]["event"]
    assert (event["action"], event["args"]) == ("read", {"start": 0, "end": -1, "impl_source": "oh_aci"})
    result = trajectory.steps[2].observation.results[1]
    assert result.extra[FORMAT]["event"]["extras"]["metadata"]["exit_code"] == 0


def test_events_that_no_model_read_or_wrote_are_kept_beside_the_conversation():
    _, trajectory = log(FORMAT, "stream.json")
    kinds = [event.get("action", event.get("observation")) for event in trajectory.extra[FORMAT]["events"]]
    assert kinds == ["recall", "recall", "agent_state_changed"]


def test_an_observation_that_answers_no_call_is_what_the_model_read_next():
    _, trajectory = log(FORMAT, "stream.json")
    assert (trajectory.steps[4].source, trajectory.steps[4].message) == ("user", "The editor was restarted.")
    _, other = log(FORMAT, "download.json")
    assert [step.message for step in other.steps[2:]] == ["git status", "nothing to commit", "What shall I do?"]


def test_a_condensed_context_is_noted():
    record, _ = log(FORMAT, "download.json")
    assert noted(record)["condensed_context"] == 1
    record, trajectory = log(FORMAT, "sdk_events.json")
    assert noted(record)["condensed_context"] == 1
    assert (trajectory.steps[4].source, trajectory.steps[4].message) == ("user", "The folder was listed.")


def test_usage_model_tools_and_version_are_read_from_the_stream():
    _, trajectory = log(FORMAT, "stream.json")
    metrics = trajectory.steps[2].metrics
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (500, 20, 480)
    assert (trajectory.agent.model_name, trajectory.agent.version) == ("model-o", "0.35.0")
    assert trajectory.agent.tool_definitions[0]["function"]["name"] == "execute_bash"


def test_pairs_of_action_and_observation_are_calls_by_the_actions_name():
    _, (record, trajectory) = logs(FORMAT, "output.jsonl")
    assert [step.source for step in trajectory.steps] == ["user", "agent", "agent", "agent"]
    assert calls(trajectory) == [
        ("run", {"command": "ls", "blocking": False}, "half.py"),
        ("run_ipython", {"code": "edit('half.py')"}, "[File updated]"),
        ("finish", {"outputs": {}}, None),
    ]
    assert [step.message for step in trajectory.steps[1:]] == ["I list.", "I edit.", "Ready."]
    assert noted(record) == {"naive_timestamp": 1, "event_id_as_call_id": 3, "unanswered_call": 1}


def test_an_evaluation_record_gives_task_patch_and_totals_and_keeps_the_rest():
    (_, trajectory), _ = logs(FORMAT, "output.jsonl")
    own = trajectory.ratchet
    assert (own.task_id, own.repo, own.issue_id) == ("acme__half-12", "acme/half", "acme/half#12")
    assert (own.deliverable.submitted, list(own.deliverable.files), own.score.kind) == (
        True,
        ["submission.diff"],
        "unscored",
    )
    assert (trajectory.agent.name, trajectory.agent.model_name) == ("CodeActAgent", "provider/model-o")
    totals = trajectory.final_metrics
    assert (totals.total_prompt_tokens, totals.total_cached_tokens, totals.total_cost_usd) == (1500, 1440, 0.12)
    assert trajectory.extra[FORMAT]["metadata"]["max_iterations"] == 50


def test_an_instance_that_never_ran_is_set_aside_beside_the_others():
    assert rejected(FORMAT, raw(FORMAT, "output.jsonl")) == ["no_events"]


def test_action_events_of_one_response_are_one_step():
    record, trajectory = log(FORMAT, "sdk_events.json")
    assert [step.source for step in trajectory.steps] == ["system", "user", "agent", "agent", "user", "agent"]
    assert calls(trajectory) == [
        ("terminal", {"command": "ls", "security_risk": "LOW"}, "half.py"),
        ("editor", {}, "Arguments are no JSON"),
        ("terminal", {"command": "rm half.py"}, "No!"),
        ("finish", {"message": "Fixed."}, "Fixed."),
    ]
    assert (trajectory.steps[2].message, trajectory.steps[2].reasoning_content) == ("Both.", "Look first.")
    assert trajectory.steps[2].tool_calls[1].extra["arguments_text"] == '{"command": "view"'
    expected = {"arguments_not_an_object": 1, "condensed_context": 1, "ends_on_result": 1, "naive_timestamp": 1}
    assert noted(record) == expected


def test_what_the_agents_context_adds_is_read_after_the_message():
    _, trajectory = log(FORMAT, "sdk_events.json")
    assert [part.text for part in trajectory.steps[1].message][1] == "<RULES>be brief</RULES>"


def test_an_sdk_evaluation_record_gives_task_patch_and_model():
    _, trajectory = log(FORMAT, "sdk_output.jsonl")
    assert (trajectory.ratchet.task_id, trajectory.agent.model_name) == ("acme__half-12", "provider/model-s")
    assert trajectory.ratchet.deliverable.submitted
    assert trajectory.extra[FORMAT]["attempt"] == 1


def test_rows_of_messages_are_read_as_the_model_had_them():
    record, trajectory = log(FORMAT, "rows.jsonl")
    assert calls(trajectory) == [
        ("execute_bash", {"command": "ls"}, "half.py"),
        ("finish", {"message": "Fixed."}, None),
    ]
    own = trajectory.ratchet
    assert (own.task_id, own.repo, own.deliverable.submitted) == ("acme__half-12", "acme/half", True)
    assert own.deliverable.touched == ("half.py",)
    assert trajectory.agent.tool_definitions[0]["function"]["name"] == "execute_bash"
    assert trajectory.extra[FORMAT]["resolved"] == 1
    assert noted(record) == {"tools_as_string": 1, "unanswered_call": 1}


def test_quirks_of_actions_are_kept_and_noted():
    record, trajectory = log(FORMAT, "quirks.json")
    assert calls(trajectory) == [
        ("execute_bash", {}, "one"),
        ("execute_bash", {"command": "ls"}, "two"),
        ("execute_bash", {"command": "ls"}, None),
        ("browse", {"url": "http://x"}, None),
    ]
    assert [part.type for part in trajectory.steps[4].message] == ["text", "image"]
    assert (trajectory.steps[5].message, trajectory.steps[5].reasoning_content) == ("I look.", "Hm.")
    assert noted(record) == {
        "empty_arguments": 1,
        "duplicate_call_id": 1,
        "call_outside_response": 1,
        "event_id_as_call_id": 1,
        "naive_timestamp": 1,
        "mixed_timestamps": 1,
        "unanswered_call": 2,
    }


def test_quirks_of_sdk_events_are_kept_and_noted():
    record, trajectory = log(FORMAT, "sdk_quirks.json")
    assert calls(trajectory) == [
        ("execute", {"command": "ls"}, "half.py"),
        ("terminal", {"command": "ls"}, "one"),
        ("terminal", {}, '{"kind":"OddObservation","rows":[1,2]}'),
    ]
    assert [part.type for part in trajectory.steps[1].message] == ["image", "text"]
    assert trajectory.extra[FORMAT]["events"][0]["kind"] == "NovelEvent"
    assert noted(record) == {
        "empty_arguments": 1,
        "duplicate_call_id": 1,
        "unknown_observation": 1,
        "unknown_event": 1,
        "naive_timestamp": 1,
        "mixed_timestamps": 1,
        "ends_on_result": 1,
    }


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"trajectory": [{"source": "user"}]}, "bad_event"),
        ({"trajectory": [{"action": "agent_state_changed", "args": {}}]}, "no_messages"),
        ({"trajectory": [{"kind": "MessageEvent", "source": "user"}]}, "bad_event"),
        ({"trajectory": [{"action": "message", "args": [], "source": "user"}, 1]}, "bad_event"),
        ({"trajectory": []}, "no_events"),
    ],
)
def test_what_has_no_reading_is_set_aside_whole_and_by_name(body, code):
    assert rejected(FORMAT, body) == [code]


def test_one_unreadable_event_sets_its_whole_stream_aside():
    data = raw(FORMAT, "stream.json").replace(b'"exit_code": 0', b'"exit_code": NaN')
    assert rejected(FORMAT, data) == ["not_finite"]
    assert rejected(FORMAT, raw(FORMAT, "stream.json")[:-60]) == ["truncated"]
