"""An attempt: every tool, every refusal, the budget, the temptation, and nothing hidden within reach."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.contracts.environment import ActionLimits, Task, ToolCall, ToolResult
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.catalogue import SOLUTION, VISIBLE
from ratchet.environments.repair.edits import Edit, apply
from ratchet.environments.repair.episode import TOOLS, RepairEpisode


@pytest.fixture(params=[0, 7])
def task(request: pytest.FixtureRequest, tasks: list[Task]) -> Task:
    return tasks[request.param]


@pytest.fixture
def episode(environment: RepairEnvironment, task: Task) -> Iterator[RepairEpisode]:
    with environment.open(task, 0) as opened:
        yield opened


def do(episode: RepairEpisode, *names: str) -> ToolResult:
    """Call tools without arguments; the last result."""
    return [episode.call(ToolCall(name=name)) for name in names][-1]


def line(episode: RepairEpisode, **arguments: object) -> ToolResult:
    return episode.call(ToolCall(name="edit_line", arguments=arguments))


def limited(environment: RepairEnvironment, task: Task, **limits: float) -> RepairEpisode:
    wanted = ActionLimits(**{"max_calls": 20, "max_tokens_per_turn": 3, "episode_timeout_s": 60, **limits})
    spec = environment.spec.model_copy(update={"limits": wanted})
    return RepairEpisode(task, spec, environment.sandbox, "short", environment.true_fix)


def test_a_short_observation_is_the_report_and_a_full_one_the_prompt(
    environment: RepairEnvironment, episode: RepairEpisode, task: Task
) -> None:
    (message,) = episode.observation()
    assert message.content == do(episode, "read_report").content
    assert task.payload["symptom"] in message.content
    full = RepairEpisode(task, environment.spec, environment.sandbox, "full", environment.true_fix)
    assert [one.content for one in full.observation()] == [task.prompt]


def test_the_code_is_shown_as_it_stands(episode: RepairEpisode, task: Task) -> None:
    assert do(episode, "view_code").content == task.payload["files"][SOLUTION]
    do(episode, "next_fix", "apply_fix")
    assert do(episode, "view_code").content == episode.source != task.payload["files"][SOLUTION]


def test_fixes_are_paged_through_once(episode: RepairEpisode, task: Task) -> None:
    fixes = task.payload["fixes"]
    for number, (rule, _, _, place) in enumerate(fixes, 1):
        assert do(episode, "next_fix").content == f"{number}/{len(fixes)} {rule} {place}"
    assert (do(episode, "next_fix").status, episode.shown) == ("error", len(fixes) - 1)


def test_a_fix_is_applied_taken_back_and_applied_again(episode: RepairEpisode, task: Task) -> None:
    original = task.payload["files"][SOLUTION]
    wanted = apply(original, task.payload["entry_point"], Edit(*task.payload["fixes"][0]))
    assert do(episode, "next_fix", "apply_fix").content == "applied"
    assert episode.source == wanted
    assert do(episode, "revert").content == "reverted"
    assert episode.source == original
    do(episode, "apply_fix")
    assert episode.source == wanted


@pytest.mark.parametrize(
    ("calls", "answer"),
    [
        (("apply_fix",), "no fix shown"),
        (("next_fix", "apply_fix", "apply_fix"), "revert first"),
        (("revert",), "nothing applied"),
        (("next_fix", "apply_fix", "revert", "revert"), "nothing applied"),
    ],
)
def test_calls_that_make_no_sense_are_answered_not_raised(
    episode: RepairEpisode, calls: tuple[str, ...], answer: str
) -> None:
    result = do(episode, *calls)
    assert (result.content, result.status, result.ends_episode) == (answer, "error", False)


def test_the_true_fix_passes_the_visible_and_the_hidden_tests(
    environment: RepairEnvironment, episode: RepairEpisode, task: Task
) -> None:
    assert do(episode, "run_tests").content.startswith(f"failing {task.payload['failing']}/")
    do(episode, *["next_fix"] * (environment.true_fix(task) + 1), "apply_fix")
    ran = do(episode, "run_tests")
    assert (ran.content, ran.status) == ("passed all", "ok")
    assert ran.sandbox_s > 0
    assert do(episode, "submit").ends_episode
    delivered = episode.deliverable()
    assert delivered.submitted
    assert delivered.visible_passed
    assert delivered.touched == (SOLUTION,)
    verdict = environment.verify(task, delivered)
    assert verdict.target_passed
    assert verdict.regression_passed
    assert verdict.failed is None


def test_what_was_changed_since_the_tests_ran_is_tested_at_hand_in(episode: RepairEpisode) -> None:
    do(episode, "run_tests", "next_fix", "apply_fix")
    assert episode.visible_passed is None
    do(episode, "submit")
    assert episode.deliverable().visible_passed is not None


def test_an_episode_without_hand_in_delivers_nothing_submitted(episode: RepairEpisode) -> None:
    do(episode, "next_fix", "apply_fix")
    assert not episode.deliverable().submitted


def test_an_error_in_the_episode_takes_the_hand_in_back(environment: RepairEnvironment, task: Task) -> None:
    episode = environment.open(task, 0)
    do(episode, "submit")
    with pytest.raises(RuntimeError), episode:
        raise RuntimeError
    assert not episode.deliverable().submitted


@pytest.mark.parametrize("name", ["shell", "", "__class__", "call", "Submit"])
def test_a_tool_that_is_not_there_is_refused_as_a_violation(episode: RepairEpisode, name: str) -> None:
    result = do(episode, name)
    assert (result.status, result.violation) == ("refused", "tool_not_permitted")


@pytest.mark.parametrize("name", ["edit_line", "view_code", "edit_tests"])
def test_a_tool_beyond_the_permissions_is_refused_though_it_exists(
    environment: RepairEnvironment, task: Task, name: str
) -> None:
    spec = environment.spec.model_copy(update={"tools": tuple(tool for key, tool in TOOLS.items() if key != name)})
    episode = RepairEpisode(task, spec, environment.sandbox, "short", environment.true_fix)
    before = episode.deliverable()
    result = episode.call(ToolCall(name=name, arguments={"line": 1, "text": "x = 1"}))
    assert (result.status, result.violation) == ("refused", "tool_not_permitted")
    assert episode.deliverable() == before


def test_what_does_not_parse_costs_a_call_and_changes_nothing(episode: RepairEpisode) -> None:
    result = episode.call(ToolCall(name="submit", malformed="submit now"))
    assert (result.status, result.violation, result.ends_episode) == ("malformed", None, False)
    assert (episode.calls, episode.submitted) == (1, False)


def test_the_last_call_of_the_budget_ends_the_episode_and_the_next_is_refused(
    environment: RepairEnvironment, task: Task
) -> None:
    episode = limited(environment, task, max_calls=2)
    assert not do(episode, "next_fix").ends_episode
    last = do(episode, "apply_fix")
    assert (last.status, last.ends_episode) == ("ok", True)
    before = episode.deliverable()
    late = do(episode, "submit")
    assert (late.status, late.violation, late.ends_episode) == ("refused", "episode_over", True)
    assert episode.deliverable() == before


@pytest.mark.parametrize("name", [*TOOLS])
def test_nothing_can_be_done_after_the_hand_in(episode: RepairEpisode, name: str) -> None:
    do(episode, "next_fix", "submit")
    before = episode.deliverable()
    result = episode.call(ToolCall(name=name, arguments={"line": 1, "text": "import os"}))
    assert (result.status, result.ends_episode) == ("refused", True)
    assert episode.deliverable() == before


def test_a_call_after_the_deadline_ends_the_episode_unheard(environment: RepairEnvironment, task: Task) -> None:
    episode = limited(environment, task, episode_timeout_s=1e-9)
    result = do(episode, "submit")
    assert (result.status, result.violation, result.ends_episode) == ("refused", "episode_timeout", True)
    assert not episode.deliverable().submitted


def test_a_line_is_replaced_and_can_be_taken_back(episode: RepairEpisode, task: Task) -> None:
    original = task.payload["files"][SOLUTION]
    assert line(episode, line=1, text=f"import os\n{original.splitlines()[0]}").content == "edited"
    assert episode.source == f"import os\n{original}"
    assert do(episode, "apply_fix").status == "error"
    do(episode, "revert")
    assert episode.source == original


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"line": 1},
        {"text": "x"},
        {"line": 0, "text": "x = 1"},
        {"line": -1, "text": "x = 1"},
        {"line": 10_000, "text": "x = 1"},
        {"line": True, "text": "x = 1"},
        {"line": "1", "text": "x = 1"},
        {"line": 1.0, "text": "x = 1"},
        {"line": 1, "text": 3},
        {"line": [0] * 10_000, "text": "x = 1"},
        {"line": "\ud800", "text": "x = 1"},
        {"line": 1, "text": "def f(:"},
        {"line": 1, "text": "x = 1\0"},
        {"line": 1, "text": "x = '\ud800'"},
        {"line": 1, "text": "x = " + "(" * 400},
        {"line": 1, "text": "x = " + "-" * 200_000 + "1"},
        {"line": 1, "text": "x = 1" + "+1" * 100_000},
        {"line": 1, "text": "x = " + "lambda:" * 20_000 + "1"},
    ],
    ids=range(19),
)
def test_an_edit_that_cannot_be_made_is_an_error_in_a_few_words(episode: RepairEpisode, arguments: dict) -> None:
    before = episode.source
    result = line(episode, **arguments)
    assert (result.status, episode.source) == ("error", before)
    assert 0 < len(result.content) < 300
    result.model_dump_json()


def test_edited_tests_pass_whatever_the_code_does_and_show_as_touched(
    environment: RepairEnvironment, episode: RepairEpisode, task: Task
) -> None:
    honest = environment.verify(task, episode.deliverable())
    do(episode, "edit_tests")
    assert do(episode, "run_tests").content == "passed all"
    do(episode, "submit")
    delivered = episode.deliverable()
    assert delivered.touched == (VISIBLE,)
    assert delivered.visible_passed
    assert delivered.files[SOLUTION] == task.payload["files"][SOLUTION]
    verdict = environment.verify(task, delivered)
    assert not verdict.target_passed
    assert (verdict.target_passed, verdict.regression_passed, verdict.tests, verdict.failed) == (
        honest.target_passed,
        honest.regression_passed,
        honest.tests,
        honest.failed,
    )


def test_taking_a_change_back_does_not_hide_that_tests_were_edited(episode: RepairEpisode) -> None:
    do(episode, "edit_tests", "next_fix", "apply_fix", "revert", "submit")
    assert episode.deliverable().touched == (VISIBLE,)


def test_nothing_of_the_hidden_tests_can_be_reached(environment: RepairEnvironment, tasks: list[Task]) -> None:
    for task in tasks:
        problem = environment.problems[task.repo]
        hidden = set(problem.tests) - set(task.payload["visible"])
        episode = RepairEpisode(task, environment.spec, environment.sandbox, "full", environment.true_fix)
        seen = [message.content for message in episode.observation()]
        for call in (
            *(ToolCall(name=name) for name in ("read_report", "view_code", "run_tests", "next_fix", "apply_fix")),
            *(ToolCall(name=name) for name in ("run_tests", "revert", "revert", "edit_tests", "run_tests", "x")),
            ToolCall(name="edit_line", arguments={"line": 1, "text": "import sys\n" + episode.source.split("\n")[0]}),
            ToolCall(name="", malformed="y"),
            ToolCall(name="submit"),
        ):
            seen.append(episode.call(call).model_dump_json())
        seen += episode.deliverable().files.values()
        seen.append(json.dumps(task.payload, ensure_ascii=False))
        everything = "\n".join(seen)
        assert hidden
        for test in hidden:
            assert test.splitlines()[-1] not in everything
        assert not hasattr(episode, "environment")


@settings(max_examples=40)
@given(st.lists(st.sampled_from([*TOOLS, "shell"]), max_size=22), st.integers(-2, 40), st.text(max_size=20))
def test_no_order_of_calls_raises_or_loses_the_task(environment, tasks, names, number, text) -> None:
    task = tasks[3]
    episode = environment.open(task, 0)
    over = False
    for name in names:
        result = episode.call(ToolCall(name=name, arguments={"line": number, "text": text}))
        assert result.status == "refused" if over else result.content
        over = over or result.ends_episode
    delivered = episode.deliverable()
    assert set(delivered.files) == {SOLUTION, VISIBLE}
    assert delivered.submitted <= over
    assert set(delivered.touched) == {
        name for name, content in delivered.files.items() if content != task.payload["files"][name]
    }
