"""tau-bench results: duplicate ids, runs that end on a tool, rewards that are no scores."""

import json

import pytest
from log_samples import calls, log, logs, noted, plain, raw, recognised, rejected

FORMAT = "tau_bench"


@pytest.mark.parametrize("name", ["airline.json", "airline.jsonl", "quirks.json"])
def test_results_are_recognised_printed_compact_and_cut(name):
    assert recognised(FORMAT, name) == [FORMAT]
    assert recognised(FORMAT, name, json.dumps(plain(FORMAT, name)).encode()) == [FORMAT]
    assert recognised(FORMAT, name, raw(FORMAT, name)[:900]) == [FORMAT]


@pytest.mark.parametrize("body", [[{"task_id": 1, "reward": 1.0, "info": {}}], [{"task_id": 1, "traj": []}]])
def test_what_only_looks_like_it_is_not_recognised(body):
    assert recognised(FORMAT, "x.json", json.dumps(body).encode()) == []


def test_duplicate_ids_are_reissued_with_the_original_kept_and_every_call_has_its_own_answer():
    (record, trajectory), *_ = logs(FORMAT, "airline.json")
    assert calls(trajectory) == [
        ("get_user", {"user_id": "u1"}, '{"name": "Mia"}'),
        ("get_booking", {"id": "B1"}, "B1"),
        ("cancel", {"id": "B1"}, "done"),
    ]
    made = [call for step in trajectory.steps for call in step.tool_calls or ()]
    assert made[0].tool_call_id == "call_1"
    assert [call.tool_call_id.split(":")[1:] for call in made[1:]] == [["4", "0"], ["5", "0"]]
    assert [call.extra for call in made[1:]] == [{"original_call_id": "call_1"}] * 2
    assert noted(record) == {"duplicate_call_id": 2}


def test_a_run_that_ends_on_a_tool_and_empty_arguments_are_noted():
    _, (record, trajectory), _ = logs(FORMAT, "airline.json")
    assert calls(trajectory) == [("transfer_to_human_agents", {}, "Transfer successful")]
    assert noted(record) == {"empty_arguments": 1, "ends_on_result": 1}


def test_parallel_calls_answered_in_another_order_keep_their_own_answers():
    *_, (record, trajectory) = logs(FORMAT, "airline.json")
    assert [answer for _, _, answer in calls(trajectory)] == ["one", "two"]
    assert noted(record) == {}


def test_objects_parts_null_content_and_missing_ids_are_kept_and_noted():
    record, trajectory = log(FORMAT, "quirks.json")
    assert calls(trajectory) == [("get_user", {"user_id": "u1"}, None), ("get_booking", {}, "two")]
    assert len(trajectory.steps[2].observation.results) == 2
    assert trajectory.steps[1].message[0].text == "Parts"
    assert trajectory.steps[2].extra[FORMAT]["content"] is None
    expected = {
        "arguments_as_object": 1,
        "arguments_not_an_object": 1,
        "missing_call_id": 2,
        "result_paired_by_order": 2,
    }
    assert noted(record) == expected


def test_the_reward_is_kept_beside_the_run_and_is_no_score():
    (_, trajectory), *_ = logs(FORMAT, "airline.json")
    assert trajectory.ratchet.score.kind == "unscored"
    body = plain(FORMAT, "airline.json")[0]
    assert trajectory.extra[FORMAT] == {key: value for key, value in body.items() if key != "traj"}
    assert trajectory.ratchet.task_id == "0"


def test_a_run_that_failed_before_its_first_message_is_set_aside_beside_the_others():
    assert rejected(FORMAT, raw(FORMAT, "airline.json")) == ["no_messages"]
    assert len(logs(FORMAT, "airline.json")) == 3


def test_a_bad_run_costs_itself_alone():
    data = raw(FORMAT, "airline.json").replace(b'"trial": 1', b'"trial": NaN')
    assert [item.number for item, _ in logs(FORMAT, "airline.json", data)] == [0, 1]
