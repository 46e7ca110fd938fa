"""SWE-agent `.traj` files: all generations, what stays text, what is copied, and what stands beside the messages."""

import json

import pytest
from log_samples import SAMPLES, calls, log, logs, noted, plain, raw, recognised, rejected

FORMAT = "swe_agent"
FILES = sorted(path.name for path in (SAMPLES / FORMAT).iterdir())


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("cut", [None, 1200])
def test_every_generation_is_recognised_also_by_a_cut_head(name, cut):
    assert recognised(FORMAT, name, raw(FORMAT, name)[:cut]) == [FORMAT]


@pytest.mark.parametrize("name", FILES)
def test_printed_and_compact_files_are_recognised_alike(name):
    body = plain(FORMAT, name)
    assert recognised(FORMAT, name, json.dumps(body).encode()) == [FORMAT]
    assert recognised(FORMAT, name, json.dumps(body, indent=4).encode("utf-16")) == [FORMAT]


@pytest.mark.parametrize(
    "body",
    [
        {"history": [{"role": "user", "content": "x"}]},
        {"history": [], "trajectory": []},
        {"trajectory": [{"x": 1}]},
        {"attempts": [{"score": 1}]},
        {"trajectory": [{"action": "run", "args": {}, "source": "agent"}]},
        {"history": [{"action": "run", "args": {}}], "instance_id": "a", "test_result": {}},
    ],
)
def test_what_only_looks_like_it_is_not_recognised(body):
    assert FORMAT not in recognised(FORMAT, "x.json", json.dumps(body).encode())


def test_text_actions_stay_the_text_that_was_written_and_read():
    _, trajectory = log(FORMAT, "acme__half-12.traj")
    assert [step.source for step in trajectory.steps[3:]] == ["agent", "user", "agent", "user", "agent"]
    assert trajectory.steps[3].message == "Look around.\n```\nls -a\n```"
    assert trajectory.steps[3].extra["swe_agent"]["action"] == "ls -a\n"
    assert calls(trajectory) == []


def test_the_last_observation_that_no_message_repeats_is_the_result_of_the_last_step():
    record, trajectory = log(FORMAT, "acme__half-12.traj")
    (result,) = trajectory.steps[-1].observation.results
    assert (result.source_call_id, result.content) == (None, plain(FORMAT, "acme__half-12.traj")["info"]["submission"])
    assert noted(record) == {}


def test_state_and_times_of_a_step_are_kept_with_it_and_observations_only_where_no_message_has_them():
    _, trajectory = log(FORMAT, "one_zero.traj")
    own = trajectory.steps[2].extra["swe_agent"]
    assert (own["execution_time"], own["state"]["working_dir"]) == (0.25, "/repo")
    assert "observation" not in own
    _, old = log(FORMAT, "acme__half-12.traj")
    assert json.loads(old.steps[3].extra["swe_agent"]["state"]) == {"open_file": "n/a", "working_dir": "/repo"}


def test_tries_that_were_repeated_and_turns_outside_the_history_are_kept_and_noted():
    record, trajectory = log(FORMAT, "one_zero.traj")
    assert trajectory.steps[3].extra["swe_agent"]["repeated_tries"][0]["action"] == "python 'half.py"
    assert [step["action"] for step in trajectory.extra["swe_agent"]["steps_outside_history"]] == ["submit"]
    assert noted(record)["step_outside_history"] == 2


def test_demonstrations_inside_a_history_are_copied_context_with_their_results():
    _, trajectory = log(FORMAT, "query.traj")
    assert [step.is_copied_context for step in trajectory.steps] == [None, True, True, None, None, None]
    assert calls(trajectory)[:2] == [
        ("bash", {"command": "ls"}, "demo.py"),
        ("bash", {"command": "ls"}, trajectory.steps[4].observation.results[0].content),
    ]
    _, old = log(FORMAT, "acme__half-12.traj")
    assert [step.step_id for step in old.steps if step.is_copied_context] == [2]


def test_a_demonstration_file_is_a_trajectory_of_its_own():
    record, trajectory = log(FORMAT, "demonstration.traj")
    assert [step.is_copied_context for step in trajectory.steps] == [None] * 4
    assert [name for name, _, _ in calls(trajectory)] == ["find_file", "submit"]
    assert noted(record) == {"call_ids_as_list": 2, "ends_on_result": 1, "arguments_as_object": 1}


def test_the_repeated_input_of_every_step_is_dropped_and_counted():
    record, trajectory = log(FORMAT, "query.traj")
    assert record.dropped == ("trajectory.query", "trajectory.query")
    assert "demo.py" not in json.dumps(trajectory.extra)


def test_thinking_is_reasoning_and_what_stands_beside_a_part_is_kept():
    _, trajectory = log(FORMAT, "query.traj")
    assert trajectory.steps[4].reasoning_content == "The folder first."
    assert trajectory.steps[4].extra["swe_agent"]["thinking_blocks"][0]["signature"] == "c2ln"
    assert [part.text for part in trajectory.steps[3].message] == [
        plain(FORMAT, "query.traj")["history"][4]["content"][0]["text"]
    ]
    assert trajectory.steps[3].extra["swe_agent"]["parts"] == {"0": {"cache_control": {"type": "ephemeral"}}}


def test_a_duplicate_id_is_reissued_and_each_call_has_its_own_answer():
    record, trajectory = log(FORMAT, "one_zero.traj")
    first, second = [call for step in trajectory.steps for call in step.tool_calls or ()]
    assert first.tool_call_id == "call_1"
    assert second.tool_call_id.split(":")[1:] == ["4", "0"]
    assert second.extra == {"original_call_id": "call_1"}
    assert [answer.split("\n")[0] for _, _, answer in calls(trajectory)] == [
        "[File: half.py]",
        "Your command ran and gave no output.",
    ]
    assert noted(record)["duplicate_call_id"] == 1


def test_null_content_missing_ids_and_bad_arguments_are_kept_and_noted():
    record, trajectory = log(FORMAT, "quirks.traj")
    assert [arguments for _, arguments, _ in calls(trajectory)] == [
        {"command": "ls"},
        {"command": "ls"},
        {},
        {"path": "x"},
    ]
    assert [answer for _, _, answer in calls(trajectory)] == ["half.py", "one", "two", None]
    assert trajectory.steps[2].message == ""
    assert trajectory.steps[2].extra["swe_agent"]["content"] is None
    assert trajectory.steps[4].tool_calls[0].extra["arguments_text"] == "{not json"
    expected = {"missing_call_id": 1, "result_paired_by_order": 1, "call_ids_as_list": 2, "duplicate_call_id": 1}
    assert noted(record) == expected | {"arguments_not_an_object": 1, "unanswered_call": 1}


def test_every_attempt_of_a_retry_run_is_a_trajectory_and_the_chosen_one_says_so():
    (first, one), (second, two) = logs(FORMAT, "retry.traj")
    assert [one.extra["swe_agent"]["attempt"], two.extra["swe_agent"]["attempt"]["chosen"]] == [
        {"index": 0, "of": 2, "chosen": False},
        True,
    ]
    assert two.extra["swe_agent"]["attempt"]["run"]["model_stats"]["instance_cost"] == 1.1
    assert [(first.number, one.agent.model_name), (second.number, two.agent.model_name)] == [
        (0, "model-c"),
        (1, "model-d"),
    ]
    assert [item.ratchet.deliverable.submitted for item in (one, two)] == [False, True]
    assert first.raw != second.raw


def test_submission_usage_version_and_task_go_where_they_belong():
    _, trajectory = log(FORMAT, "one_zero.traj")
    own = trajectory.ratchet
    body = plain(FORMAT, "one_zero.traj")
    assert (own.task_id, own.repo, own.issue_id) == ("acme__half-i12", "acme/half", "acme/half#12")
    assert own.deliverable.submitted
    assert own.deliverable.files == {"submission.diff": body["info"]["submission"]}
    assert own.deliverable.touched == ("half.py",)
    assert own.score.kind == "unscored"
    assert (trajectory.agent.name, trajectory.agent.version, trajectory.agent.model_name) == (
        "SWE-agent",
        "1.0.1",
        "model-a",
    )
    totals = trajectory.final_metrics
    assert (totals.total_prompt_tokens, totals.total_completion_tokens, totals.total_cost_usd) == (7141, 243, 0.0195)
    assert trajectory.extra["swe_agent"]["info"]["exit_status"] == "submitted (exit_cost)"
    assert trajectory.extra["swe_agent"]["replay_config"] == body["replay_config"]


def test_the_file_name_names_the_task_where_nothing_else_does():
    _, trajectory = log(FORMAT, "acme__half-12.traj")
    assert (trajectory.ratchet.task_id, trajectory.ratchet.repo) == ("acme__half-12", "acme/half")
    _, other = log(FORMAT, "demonstration.traj")
    assert other.ratchet.task_id is None


def test_rows_of_data_sets_come_in_line_by_line_with_their_patch():
    found = logs(FORMAT, "rows.jsonl")
    assert [item.ratchet.task_id for _, item in found] == ["acme__half-12", "acme__half-13"]
    assert [step.source for step in found[0][1].steps] == ["system", "user", "agent"]
    assert found[0][1].steps[0].message == "SETTING"
    assert (found[0][1].agent.model_name, found[0][1].ratchet.deliverable.submitted) == ("model-e", True)


def test_a_trajectory_without_its_history_is_rebuilt_from_the_steps():
    body = plain(FORMAT, "query.traj")
    del body["history"]
    _, trajectory = log(FORMAT, "x.traj", json.dumps(body).encode())
    assert [step.source for step in trajectory.steps] == ["system", "user", "agent", "user", "agent", "user", "agent"]
    assert trajectory.steps[-1].message == "Submit."
    assert trajectory.steps[-1].observation.results[0].content == body["info"]["submission"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"trajectory": [], "history": [], "info": {}}, "no_messages"),
        ({"history": {}, "trajectory": []}, "bad_message"),
        ({"history": ["x"]}, "bad_message"),
        ({"history": [{"role": "wizard"}]}, "unknown_role"),
        ({"history": [{"role": "user", "content": "x"}], "trajectory": [1]}, "bad_step"),
        ({"history": [{"role": "user", "content": "x"}], "info": []}, "bad_metadata"),
        ({"attempts": [1]}, "bad_attempt"),
    ],
)
def test_what_has_no_reading_is_set_aside_whole_and_by_name(body, code):
    assert rejected(FORMAT, body) == [code]


def test_a_truncated_file_is_set_aside_whole_and_a_bad_line_costs_itself_alone():
    assert rejected(FORMAT, raw(FORMAT, "query.traj")[:-40]) == ["truncated"]
    lines = raw(FORMAT, "rows.jsonl").split(b"\n")
    data = b"\n".join([lines[0], b'{"trajectory": NaN}', lines[1], b""])
    assert [item.number for item, _ in logs(FORMAT, "rows.jsonl", data)] == [0, 2]
