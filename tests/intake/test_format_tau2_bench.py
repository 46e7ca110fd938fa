"""tau2-bench results: what the agent saw, what only the user saw, and rewards that are no scores."""

import json

import pytest
from log_samples import calls, log, logs, noted, plain, raw, recognised, rejected

FORMAT = "tau2_bench"


@pytest.mark.parametrize("name", ["results.json", "simulation.json", "quirks.json"])
def test_results_and_single_simulations_are_recognised(name):
    assert recognised(FORMAT, name) == [FORMAT]
    assert recognised(FORMAT, name, json.dumps(plain(FORMAT, name)).encode()) == [FORMAT]


def test_results_are_recognised_where_the_head_ends_among_the_tasks():
    body = plain(FORMAT, "results.json")
    data = json.dumps({**body, "tasks": [{"id": str(n)} for n in range(500)]}).encode()
    assert recognised(FORMAT, "results.json", data[:2000]) == [FORMAT]


@pytest.mark.parametrize(
    "body",
    [
        {"info": {"git_commit": "x"}, "tasks": [], "simulations": []},
        {"simulations": [{"task_id": "1"}]},
        {"task_id": "1", "termination_reason": "x"},
    ],
)
def test_what_only_looks_like_it_is_not_recognised(body):
    assert recognised(FORMAT, "x.json", json.dumps(body).encode()) == []


def test_every_simulation_is_a_record_with_its_own_task():
    (first, one), (second, two) = logs(FORMAT, "results.json")
    assert [(first.number, one.session_id), (second.number, two.session_id)] == [(0, "sim-a"), (1, "sim-b")]
    assert one.extra[FORMAT]["results"]["task"]["id"] == "[mobile]slow"
    assert two.extra[FORMAT]["results"]["info"]["environment_info"]["policy"] == "# Telecom policy"
    assert (one.ratchet.task_id, one.ratchet.seed, one.ratchet.segment) == ("[mobile]slow", 626729, "telecom")
    assert (one.agent.name, one.agent.model_name) == ("llm_agent", "model-t")
    assert first.raw != second.raw


def test_parallel_and_repeated_ids_keep_their_own_answers_and_several_tool_messages_are_taken_apart():
    (record, trajectory), _ = logs(FORMAT, "results.json")
    assert calls(trajectory) == [
        ("get_customer", {"phone": "555"}, "Error: unknown"),
        ("get_line", {"line": "L1"}, "line L1"),
        ("enable_lte", {"line": "L1"}, "ok"),
    ]
    assert trajectory.steps[2].observation.results[1].extra[FORMAT]["error"] is True
    assert noted(record) == {"duplicate_call_id": 1, "naive_timestamp": 1}


def test_what_the_user_did_with_its_own_tools_is_kept_and_is_not_what_the_agent_read():
    (_, trajectory), _ = logs(FORMAT, "results.json")
    assert [step.source for step in trajectory.steps] == ["agent", "user", "agent", "agent", "user", "agent", "agent"]
    asked, answered = trajectory.steps[4].extra[FORMAT]["user_calls"]
    assert (asked["tool_calls"][0]["name"], answered["content"]) == ("check_status_bar", "3G")
    assert [message["role"] for message in trajectory.extra[FORMAT]["user_calls_at_end"]] == ["user", "tool"]


def test_the_scripted_greeting_stands_for_no_model_call():
    (_, trajectory), _ = logs(FORMAT, "results.json")
    assert [step.llm_call_count for step in trajectory.steps[:3]] == [0, None, None]


def test_usage_and_cost_of_a_step_are_its_metrics():
    (_, trajectory), _ = logs(FORMAT, "results.json")
    metrics = trajectory.steps[2].metrics
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cost_usd) == (200, 2, 0.02)
    assert trajectory.steps[1].metrics is None
    assert trajectory.final_metrics.total_cost_usd == 0.14


def test_the_reward_is_kept_beside_the_run_and_is_no_score():
    (_, trajectory), _ = logs(FORMAT, "results.json")
    assert trajectory.ratchet.score.kind == "unscored"
    assert trajectory.extra[FORMAT]["reward_info"]["reward"] == 1.0
    assert trajectory.extra[FORMAT]["termination_reason"] == "user_stop"


def test_a_spoken_run_without_messages_is_set_aside_beside_the_others():
    assert rejected(FORMAT, raw(FORMAT, "results.json")) == ["no_messages"]


def test_a_bad_simulation_or_a_cut_end_costs_itself_alone():
    data = raw(FORMAT, "results.json")
    mended = data.replace(b'"duration": 60.0', b'"duration": NaN', 1)
    assert [trajectory.session_id for _, trajectory in logs(FORMAT, "results.json", mended)] == ["sim-b"]
    assert rejected(FORMAT, mended) == ["not_finite", "no_messages"]
    cut = data[: data.index(b'"sim-b"') + 200]
    assert [trajectory.session_id for _, trajectory in logs(FORMAT, "results.json", cut)] == ["sim-a"]
    assert rejected(FORMAT, cut) == ["truncated"]


def test_a_record_stands_where_its_simulation_stands():
    data = raw(FORMAT, "results.json")
    for record, trajectory in logs(FORMAT, "results.json"):
        assert data[record.offset :].startswith(record.raw)
        assert json.loads(record.raw)["id"] == trajectory.session_id


def test_results_of_another_encoding_and_in_lines_come_in():
    body = json.dumps(plain(FORMAT, "results.json"))
    for data, times in ((body.encode("utf-16"), 1), ((body + "\n").encode() * 2, 2)):
        found = logs(FORMAT, "results.json", data)
        assert [trajectory.session_id for _, trajectory in found] == ["sim-a", "sim-b"] * times
        assert [record.number for record, _ in found] == [0, 1, 3, 4][: 2 * times]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: data + b"{}", "not_json"),
        (
            lambda data: data.replace(b'"timestamp": "2025-10-31T07:16:27.854362",', b'"info": {}, "info": {},'),
            "duplicate_key",
        ),
        (lambda data: data[: data.index(b'"tasks"')], "truncated"),
    ],
)
def test_a_document_that_is_broken_around_its_simulations_is_set_aside_whole(damage, code):
    data = damage(raw(FORMAT, "results.json"))
    assert rejected(FORMAT, data) == [code]
    assert logs(FORMAT, "results.json", data) == []


def test_an_end_between_two_simulations_is_noted():
    data = raw(FORMAT, "results.json")
    second = data.rindex(b"{", 0, data.index(b'"sim-b"'))
    assert rejected(FORMAT, data[:second]) == ["truncated"]
    assert len(logs(FORMAT, "results.json", data[:second])) == 1


def test_what_is_said_of_all_must_be_readable():
    data = raw(FORMAT, "results.json").replace(b'"num_trials": 1', b'"num_trials": NaN')
    assert rejected(FORMAT, data) == ["not_finite"]


def test_a_simulation_in_a_file_of_its_own_comes_in():
    _, trajectory = log(FORMAT, "simulation.json")
    assert (trajectory.session_id, trajectory.ratchet.task_id) == ("sim-d", "1")
    assert len(calls(trajectory)) == 2


def test_strings_empty_ids_and_mixed_times_are_kept_and_noted():
    record, trajectory = log(FORMAT, "quirks.json")
    assert calls(trajectory) == [("get_line", {"line": "L1"}, "one"), ("get_line", {}, "two")]
    assert trajectory.steps[2].extra[FORMAT]["tool_calls"][0]["name"] == "reboot"
    assert trajectory.steps[3].reasoning_content == "It works."
    assert noted(record) == {
        "empty_arguments": 1,
        "missing_call_id": 2,
        "result_paired_by_order": 2,
        "naive_timestamp": 1,
        "mixed_timestamps": 1,
    }


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"simulations": []}, "no_messages"),
        ({"simulations": {}}, "bad_results"),
        ({"simulations": [3]}, "not_an_object"),
        ({"simulations": [{"messages": ["x"]}]}, "bad_message"),
        ({"simulations": [{"messages": [{"role": "assistant", "tool_calls": [1]}]}]}, "bad_call"),
        ({"simulations": [{"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}]}, "bad_call"),
    ],
)
def test_what_has_no_reading_is_set_aside_whole_and_by_name(body, code):
    assert rejected(FORMAT, body) == [code]
