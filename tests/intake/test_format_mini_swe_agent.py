"""mini-swe-agent: text actions, tool calls, whole Responses answers, and what they state about usage and the end."""

import json

import pytest
from log_samples import SAMPLES, calls, log, noted, plain, raw, recognised, rejected

FORMAT = "mini_swe_agent"
FILES = sorted(path.name for path in (SAMPLES / FORMAT).iterdir())


@pytest.mark.parametrize("name", FILES)
def test_every_version_is_recognised_printed_compact_and_cut(name):
    body = plain(FORMAT, name)
    for data in (raw(FORMAT, name), json.dumps(body).encode(), raw(FORMAT, name)[:900]):
        assert recognised(FORMAT, name, data) == [FORMAT]


@pytest.mark.parametrize(
    "body",
    [
        {"info": {"note": "x"}, "messages": [{"role": "user", "content": "x"}]},
        {"trajectory_format": "another-1", "info": {}, "messages": []},
        {"info": {"exit_status": "x", "submission": "y"}, "messages": [], "trajectory": [], "history": []},
    ],
)
def test_what_only_looks_like_it_is_not_recognised(body):
    assert FORMAT not in recognised(FORMAT, "x.json", json.dumps(body).encode())


def test_text_actions_stay_the_text_that_was_written_and_read():
    record, trajectory = log(FORMAT, "acme__half-12.traj.json")
    assert [step.source for step in trajectory.steps] == ["system", "user", "agent", "user", "agent", "user"]
    assert trajectory.steps[2].message == "THOUGHT: look\n\n```bash\nls\n```"
    assert calls(trajectory) == []
    assert noted(record) == {}


def test_seconds_become_zoned_times_and_usage_becomes_metrics():
    record, trajectory = log(FORMAT, "acme__half-12.traj.json")
    assert trajectory.steps[2].timestamp == "2025-07-08T18:40:02+00:00"
    assert (trajectory.steps[2].metrics.prompt_tokens, trajectory.steps[2].metrics.completion_tokens) == (100, 12)
    assert trajectory.steps[3].metrics is None
    assert trajectory.steps[2].extra[FORMAT]["extra"]["response"]["model"] == "model-a"
    assert record.dropped == ("messages.extra.response.choices",)


def test_parallel_calls_answered_in_another_order_keep_their_own_answers():
    record, trajectory = log(FORMAT, "tool_calls.traj.json")
    answers = [answer for _, _, answer in calls(trajectory)]
    assert answers == ["half.py\n", "def half(x):\n    return x // 2\n", None]
    assert trajectory.steps[2].reasoning_content == "Two at once."
    assert (trajectory.steps[2].message, trajectory.steps[2].extra[FORMAT]["content"]) == ("", None)
    assert noted(record) == {"arguments_not_an_object": 1, "unanswered_call": 1}
    metrics = trajectory.steps[2].metrics
    assert (metrics.cached_tokens, metrics.cost_usd) == (64, 0.001)


def test_the_exit_message_is_no_turn():
    _, trajectory = log(FORMAT, "tool_calls.traj.json")
    assert len(trajectory.steps) == 5
    assert trajectory.extra[FORMAT]["exit"][0]["extra"]["exit_status"] == "Submitted"


def test_a_whole_responses_answer_is_one_step_with_its_calls_and_reasoning():
    record, trajectory = log(FORMAT, "responses.traj.json")
    step = trajectory.steps[2]
    assert (step.message, step.reasoning_content) == ("I list.", "List first.")
    assert calls(trajectory) == [("bash", {"command": "ls"}, "half.py"), ("bash", {"command": "pwd"}, "/testbed")]
    assert step.tool_calls[0].extra == {FORMAT: {"item_id": "fc_1", "status": "completed"}}
    assert (step.metrics.prompt_tokens, step.metrics.completion_tokens, step.metrics.cached_tokens) == (100, 40, 25)
    assert step.extra[FORMAT]["output"][0]["id"] == "rs_1"
    assert [part.text for part in trajectory.steps[3].message] == ["Tool call error"]
    assert noted(record) == {}


def test_quirks_of_calls_and_results_are_kept_and_noted():
    record, trajectory = log(FORMAT, "quirks.traj.json")
    assert calls(trajectory) == [("bash", {"command": "ls"}, "one"), ("bash", {}, "two"), ("bash", {}, "three")]
    first, second, third = trajectory.steps[2].tool_calls
    assert (first.tool_call_id, second.extra["original_call_id"]) == ("call_1", "call_1")
    assert [call.tool_call_id.split(":")[1:] for call in (second, third)] == [["3", "1"], ["3", "2"]]
    assert trajectory.steps[2].extra[FORMAT]["parts"] == {"0": {"cache_control": {"type": "ephemeral"}}}
    assert noted(record) == {
        "arguments_as_object": 1,
        "empty_arguments": 1,
        "duplicate_call_id": 1,
        "missing_call_id": 1,
        "result_names_its_call_id": 1,
        "result_paired_by_order": 1,
        "ends_on_result": 1,
    }


def test_the_end_of_a_run_its_task_and_its_cost_go_where_they_belong():
    _, trajectory = log(FORMAT, "acme__half-12.traj.json")
    own = trajectory.ratchet
    assert (own.task_id, own.repo, own.deliverable.submitted) == ("acme__half-12", "acme/half", True)
    assert (own.deliverable.touched, own.score.kind) == (("half.py",), "unscored")
    assert (trajectory.agent.version, trajectory.agent.model_name) == ("1.9.1", "model-a")
    assert trajectory.final_metrics.total_cost_usd == 0.03
    _, stopped = log(FORMAT, "responses.traj.json")
    assert (stopped.ratchet.deliverable.submitted, stopped.ratchet.deliverable.files) == (False, {})


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], "no_messages"),
        ([{"role": "exit", "content": "x"}], "no_messages"),
        ([{"role": "tutor", "content": "x"}], "unknown_role"),
        ([{"object": "response", "output": "x"}], "bad_message"),
        ([3], "bad_message"),
    ],
)
def test_what_has_no_reading_is_set_aside_whole_and_by_name(messages, code):
    assert rejected(FORMAT, {"info": {}, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}) == [code]
