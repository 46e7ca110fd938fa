"""Harness search: finds what pays, by the rubric alone, within the permissions; an interrupted one ends the same."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st
from judge_endpoint import JudgeServer, status

from ratchet.contracts.environment import ActionLimits, EnvironmentSpec, Searchable, ToolSchema
from ratchet.contracts.policy import Decoding, Harness, widened
from ratchet.errors import ManifestError, PermissionsError, RightsError, TrainingError
from ratchet.methods import base
from ratchet.methods.base import Spend
from ratchet.methods.harness_search import Attempt, Rubric, Settings, figures, fit
from ratchet.methods.proposals import first_proposals, propose

NAMES = ("read", "test", "submit", "cheat")
TOOLS = tuple(ToolSchema(name=name, description=name) for name in NAMES)
START = Harness(tools=NAMES, max_calls=20, decoding=Decoding(temperature=1.0, max_tokens_per_turn=4))
OFFERED = Searchable(
    options={"observation": ("short", "full")}, approval_rules=("cheat", "submit after test", "no_such_tool")
)
CASES = [f"case-{index}" for index in range(20)]
RUBRIC = {"acceptance": 1.0, "cost": 0.1, "violations": 0.2}


def permits(calls: int = 20, tokens: int = 4) -> EnvironmentSpec:
    limits = ActionLimits(max_calls=calls, max_tokens_per_turn=tokens, episode_timeout_s=10)
    return EnvironmentSpec(name="toy", version="1", tools=TOOLS, limits=limits, segments=("s",))


def play(harness: Harness, requests: Any) -> list[Attempt]:
    """Accepted the more often the colder, never without the full observation; `cheat` breaks a rule if unasked."""
    made = []
    for case, seed in requests:
        chance = max(0.0, 1.0 - harness.decoding.temperature) * (1.0 if harness.options else 0.5)
        chance += 0.5 if "test first" in harness.system_prompt else 0.0
        accepted = random.Random(f"{case}/{seed}").random() < chance
        cheats = "cheat" not in harness.approval_rules
        made.append(Attempt(case, accepted, float(harness.max_calls), int(cheats), f"{case}: submit"))
    return made


def search(output: Path, player: Any = play, **changed: Any) -> Any:
    named = {name: changed.pop(name) for name in ("guard", "max_wall_s", "spend") if name in changed}
    settings = Settings(**{"rubric": RUBRIC, "cases": 20, "trials": 12, "finalists": 2, "final_repeats": 2, **changed})
    return fit(START, permits(), OFFERED, CASES, player, settings, seed=3, output=output, **named)


class Drawn:
    """A trial that suggests whatever hypothesis draws from the range."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def suggest_float(self, name: str, low: float, high: float) -> float:
        return self.data.draw(st.floats(low, high))

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))


@trying(deadline=None, max_examples=60)
@given(
    data=st.data(),
    calls=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    tokens=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    held=st.sets(st.sampled_from(["cheat", "submit after test"])),
    tools=st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    offered=st.lists(st.sampled_from([*OFFERED.approval_rules, "read after shell"]), unique=True),
)
def test_no_proposal_asks_for_more_than_the_start_and_the_permissions(
    data: st.DataObject, calls: tuple[int, int], tokens: tuple[int, int], held: set[str], tools: list[str],
    offered: list[str],
) -> None:  # fmt: skip
    start = Harness(
        tools=tuple(tools), max_calls=calls[0], approval_rules=tuple(sorted(held)), hosts=("db",), paths=("/data",),
        decoding=Decoding(max_tokens_per_turn=tokens[0]),
    )  # fmt: skip
    allowed = permits(calls[1], tokens[1])
    found = propose(
        Drawn(data),
        start,
        allowed,
        OFFERED.model_copy(update={"approval_rules": tuple(offered)}),
        Settings(rubric=RUBRIC),
    )
    assert widened(found, allowed, start) == []
    assert (found.tools, found.hosts, found.paths) == (start.tools, start.hosts, start.paths)
    assert found.max_calls <= min(calls)
    assert found.decoding.max_tokens_per_turn <= min(tokens)
    assert set(start.approval_rules) <= set(found.approval_rules)
    assert Harness.model_validate(found.model_dump()) == found


def test_a_start_that_asks_for_too_much_is_never_played(tmp_path: Path) -> None:
    played: list[Harness] = []
    with pytest.raises(PermissionsError, match="20 calls per episode, over 10"):
        fit(START, permits(calls=10), OFFERED, CASES, lambda harness, _: played.append(harness) or [],
            Settings(rubric=RUBRIC, cases=20), seed=0, output=tmp_path)  # fmt: skip
    assert played == []


def test_it_finds_what_pays_and_counts_what_it_spent(tmp_path: Path) -> None:
    found = search(tmp_path)
    assert found.harness.decoding.temperature < 0.5
    assert "cheat" in found.harness.approval_rules
    assert widened(found.harness, permits(), START) == []
    scores = {one["trial"]: one["score"] for one in found.finals}
    assert scores[found.step] == max(scores.values()) > scores[0]
    # Twelve harnesses, the start among them, and the second look of three, with no harness played twice.
    assert found.attempts == 20 * 12 + 40 * 3
    assert 20 * 10.0 * 12 < found.play_cost <= found.attempts * 20.0
    assert [row.step for row in found.curve] == list(range(13))
    assert found.stopped == "finished"


def test_it_tries_the_start_and_each_choice_alone_before_it_guesses(tmp_path: Path) -> None:
    seen: list[Harness] = []

    def player(harness: Harness, requests: Any) -> list[Attempt]:
        seen.append(harness)
        return play(harness, requests)

    search(tmp_path, player, trials=6, finalists=1)
    # The start is played once, as the trial that it is and as what the trials are compared with.
    assert seen[:4] == [
        START,
        START.model_copy(update={"options": {"observation": "full"}}),
        START.model_copy(update={"approval_rules": ("cheat",)}),
        START.model_copy(update={"approval_rules": ("submit after test",)}),
    ]
    assert all(one.decoding != START.decoding for one in seen[4:6])


def test_what_lies_outside_the_ranges_is_first_tried_at_their_ends() -> None:
    settings = Settings(rubric=RUBRIC, temperature=(0.1, 0.7), search=("decoding", "limits"))
    assert first_proposals(START, permits(calls=7), OFFERED, settings) == [
        {"temperature": 0.7, "top_p": 1.0, "max_calls": 7, "max_tokens_per_turn": 4}
    ]


def test_the_rubric_decides(tmp_path: Path) -> None:
    dear = search(tmp_path / "a", rubric={"acceptance": 0.01, "cost": 5.0, "violations": 0.0})
    assert dear.harness.max_calls == min(row["harness"]["max_calls"] for row in dear.finals)
    attempts = [Attempt("a", True, 2.0, 0, ""), Attempt("b", False, 4.0, 1, ""), Attempt("c", None, 99.0, 9, "")]
    seen = figures(attempts, Rubric(acceptance=2.0, cost=0.5, violations=0.25), 1.5)
    assert seen.score == pytest.approx(2.0 * 0.5 - 0.5 * (3.0 / 1.5) - 0.25 * 0.5)
    assert (seen.acceptance, seen.cost, seen.invalid) == (0.5, 3.0, 1)


def test_a_search_that_was_interrupted_ends_in_the_same_harness_and_plays_nothing_twice(tmp_path: Path) -> None:
    whole = search(tmp_path / "whole")
    played: list[str] = []
    left = 7

    def failing() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise RightsError("grant", rule="it ended", remedy="renew it")

    def counted(harness: Harness, requests: Any) -> list[Attempt]:
        played.extend(f"{harness.digest}/{case}/{seed}" for case, seed in requests)
        return play(harness, requests)

    with pytest.raises(RightsError):
        search(tmp_path / "again", counted, guard=failing)
    with (tmp_path / "again" / "played.jsonl").open("a") as file:
        file.write('{"facts": "cut o')
    resumed = search(tmp_path / "again", counted)
    assert resumed.harness == whole.harness
    assert [row.metrics for row in resumed.curve] == [row.metrics for row in whole.curve]
    assert len(played) == len(set(played)) == whole.attempts == resumed.attempts


def test_budgets_end_the_search_with_the_best_so_far(tmp_path: Path) -> None:
    none = search(tmp_path / "wall", max_wall_s=1e-9)
    assert (none.stopped, none.trials, none.harness) == ("wall_budget", 0, START)
    few = search(tmp_path / "cost", spend=Spend(4.0, lambda seconds, judged: 3.5 if few_played() > 3 else 0.0))
    assert few.stopped == "cost_budget"
    assert 0 < few.trials < 12


def few_played() -> int:
    few_played.calls = getattr(few_played, "calls", 0) + 1  # type: ignore[attr-defined]
    return few_played.calls  # type: ignore[attr-defined, no-any-return]


def test_too_few_cases_and_bad_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="validation cases"):
        fit(START, permits(), OFFERED, CASES[:5], play, Settings(rubric=RUBRIC, cases=20), seed=0, output=tmp_path)
    with pytest.raises(ManifestError, match=r"rubric.*Field required"):
        base.parse(Settings, {"cases": 30}, "methods.h.settings")
    for wrong in ({"cases": 51}, {"cases": 19}, {"top_p": (0.5, 1.5)}, {"temperature": (0.0, 1.0)}):
        with pytest.raises(ManifestError):
            base.parse(Settings, {"rubric": RUBRIC, **wrong}, "methods.h.settings")


def reflecting(url: str, **more: Any) -> dict[str, Any]:
    endpoint = {"url": url, "model": "m", "retries": 2, "timeout_s": 10.0, "per_million_input_tokens": 1.0,
                "per_million_output_tokens": 10.0, **more}  # fmt: skip
    return {"trials": 1, "reflection": {"endpoint": endpoint, "attempts": 100}}


def test_a_reflection_model_rewrites_the_instruction_and_is_paid_for(tmp_path: Path) -> None:
    with JudgeServer(lambda text: ("x", "test first, then submit")) as server:
        server.failures.append(status(503))
        found = search(tmp_path, **reflecting(server.url))
        asked = len(server.seen)
        again = search(tmp_path, **reflecting(server.url))
        assert len(server.seen) == asked
    assert "test first" in found.harness.system_prompt
    assert found.harness.tools == START.tools
    assert "case-" in json.dumps(server.seen[-1]["body"]["messages"])
    answered = asked - 1
    assert found.reflection_cost == pytest.approx(answered * (100 * 1.0 + 20 * 10.0) / 1e6)
    assert (again.harness, again.reflection_cost) == (found.harness, found.reflection_cost)


def test_a_reflection_model_that_refuses_stops_the_search_and_keeps_what_was_played(tmp_path: Path) -> None:
    with JudgeServer(lambda text: ("x", "y")) as server:
        server.failures += [status(401)] * 4
        with pytest.raises(TrainingError, match="401"):
            search(tmp_path, **reflecting(server.url))
    assert len((tmp_path / "played.jsonl").read_text().splitlines()) >= 2
    with pytest.raises(TrainingError, match="no RATCHET_NO_SUCH_KEY"):
        search(tmp_path, **reflecting("http://127.0.0.1:9/v1", api_key_env="RATCHET_NO_SUCH_KEY"))
