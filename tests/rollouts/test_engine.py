"""The engine: log-probabilities of a plain forward pass, draws that depend on their row alone, true finish reasons."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch

from ratchet.contracts.policy import Decoding
from ratchet.policies.checkpoint import STARTER, fresh, load_tokenizer
from ratchet.rollouts.engine import Session, Turn


@cache
def model():
    made = fresh(load_tokenizer(STARTER), seed=4, width=32, layers=2, heads=2).eval()
    with torch.no_grad():
        # Sharper than fresh weights, so that a wrong position or mask shows.
        for name, parameter in made.named_parameters():
            if "norm" not in name:
                parameter.mul_(8)
    return made


END = 1
HOT = Decoding(temperature=1.0, max_tokens_per_turn=4)


def plain(ids: list[int], temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities at every position by one forward pass over the whole row alone."""
    with torch.inference_mode():
        return torch.log_softmax(model()(input_ids=torch.tensor([ids])).logits[0].double() / temperature, -1)


def talk(
    session: Session, rows: dict[int, list[int]], plans: dict[int, list[list[int]]]
) -> dict[int, tuple[list[int], list[Turn], list[int]]]:
    """Play turns until the plans are used up; per row: all ids, its turns, and where each turn's ids start."""
    held = {row: (list(first), [], []) for row, first in rows.items()}
    added = rows
    for index in range(1 + max(map(len, plans.values()))):
        turns = session.turn(added)
        assert set(turns) == set(added)
        for row, turn in turns.items():
            ids, past, starts = held[row]
            starts.append(len(ids))
            past.append(turn)
            ids += turn.ids
        added = {row: plans[row][index] for row in turns if index < len(plans[row])}
        for row, more in added.items():
            held[row][0].extend(more)
        if not added:
            break
    return held


def ragged(seed: int, size: int) -> tuple[dict[int, list[int]], dict[int, list[list[int]]]]:
    rng = random.Random(seed)

    def text(low: int, high: int) -> list[int]:
        return [rng.randrange(2, 700) for _ in range(rng.randint(low, high))]

    return (
        {row: text(1, 24) for row in range(size)},
        {row: [text(1, 9) for _ in range(rng.randint(0, 4))] for row in range(size)},
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_equal_a_plain_forward_pass_for_ragged_turns_and_dropped_rows(seed: int, temperature: float) -> None:
    rows, plans = ragged(seed, 7)
    decoding = Decoding(temperature=temperature, max_tokens_per_turn=4)
    held = talk(Session(model(), END, decoding, [f"{seed}/{row}" for row in rows]), rows, plans)
    checked = 0
    for ids, turns, starts in held.values():
        truth = plain(ids, temperature)
        for turn, start in zip(turns, starts, strict=True):
            for offset, (token, logprob) in enumerate(zip(turn.ids, turn.logprobs, strict=True)):
                assert logprob == pytest.approx(truth[start + offset - 1, token].item(), abs=1e-4)
                checked += 1
    assert checked > 20


def test_what_a_row_draws_does_not_depend_on_the_rows_beside_it() -> None:
    rows, plans = ragged(9, 6)
    together = talk(Session(model(), END, HOT, [f"s{row}" for row in rows]), rows, plans)
    for row in rows:
        alone = talk(Session(model(), END, HOT, [f"s{row}"]), {0: rows[row]}, {0: plans[row]})
        assert [turn.ids for turn in alone[0][1]] == [turn.ids for turn in together[row][1]]
    order = [4, 2, 0, 5, 1, 3]
    moved = talk(
        Session(model(), END, HOT, [f"s{row}" for row in order]),
        {index: rows[row] for index, row in enumerate(order)},
        {index: plans[row] for index, row in enumerate(order)},
    )
    for index, row in enumerate(order):
        assert moved[index][0] == together[row][0]


def test_another_seed_draws_otherwise_and_the_same_seed_the_same() -> None:
    first, again, other = (
        Session(model(), END, Decoding(max_tokens_per_turn=20), [seed]).turn({0: [5, 6, 7]})[0].ids
        for seed in ("a", "a", "b")
    )
    assert first == again != other


def test_temperature_0_is_greedy_whatever_the_seed() -> None:
    for seed in "ab":
        turn = Session(model(), END, Decoding(temperature=0, max_tokens_per_turn=6), [seed]).turn({0: [5, 6, 7]})[0]
        ids = [5, 6, 7]
        for token, logprob in zip(turn.ids, turn.logprobs, strict=True):
            truth = plain(ids)[-1]
            assert token == truth.argmax().item()
            assert logprob == pytest.approx(truth[token].item(), abs=1e-4)
            ids.append(token)


def nucleus(ids: list[int], top_p: float) -> dict[int, float]:
    """The smallest set of likeliest tokens that reaches `top_p`, with renormalised log-probabilities, by hand."""
    ranked = sorted(((p.item(), token) for token, p in enumerate(plain(ids)[-1].exp())), reverse=True)
    kept, reached = [], 0.0
    for probability, token in ranked:
        if reached >= top_p:
            break
        kept.append((token, probability))
        reached += probability
    return {token: torch.tensor(probability / reached).log().item() for token, probability in kept}


@pytest.mark.parametrize("top_p", [0.05, 0.3, 0.8])
def test_top_p_draws_from_the_nucleus_alone_with_its_own_log_probs(top_p: float) -> None:
    allowed = nucleus([5, 6, 7], top_p)
    session = Session(model(), END, Decoding(top_p=top_p, max_tokens_per_turn=1), [f"{number}" for number in range(64)])
    turns = session.turn({row: [5, 6, 7] for row in range(64)})
    for turn in turns.values():
        assert turn.ids[0] in allowed
        assert turn.logprobs[0] == pytest.approx(allowed[turn.ids[0]], abs=1e-4)
    assert len({turn.ids[0] for turn in turns.values()}) > 1 or len(allowed) == 1


def test_draws_follow_the_distribution() -> None:
    rows = 3000
    session = Session(model(), END, Decoding(max_tokens_per_turn=1), [f"{number}" for number in range(rows)])
    drawn = [turn.ids[0] for turn in session.turn({row: [5, 6] for row in range(rows)}).values()]
    probabilities = plain([5, 6])[-1].exp()
    for token in probabilities.topk(5).indices.tolist():
        expected = probabilities[token].item()
        deviation = (expected * (1 - expected) / rows) ** 0.5
        assert abs(drawn.count(token) / rows - expected) < 5 * deviation


def test_a_turn_stops_at_its_end_token_and_says_so() -> None:
    greedy = Decoding(temperature=0, max_tokens_per_turn=6)
    free = Session(model(), -1, greedy, ["a"]).turn({0: [5, 6, 7]})[0]
    assert (free.finish_reason, len(free.ids)) == ("length", 6)
    end = free.ids[2]
    stopped = Session(model(), end, greedy, ["a"]).turn({0: [5, 6, 7]})[0]
    first = free.ids.index(end)
    assert (stopped.finish_reason, stopped.ids) == ("stop", free.ids[: first + 1])
    assert stopped.logprobs == pytest.approx(free.logprobs[: first + 1], abs=1e-5)


def test_an_end_token_as_the_last_permitted_one_is_a_stop() -> None:
    greedy = Decoding(temperature=0, max_tokens_per_turn=1)
    (token,) = Session(model(), -1, greedy, ["a"]).turn({0: [5, 6, 7]})[0].ids
    assert Session(model(), token, greedy, ["a"]).turn({0: [5, 6, 7]})[0].finish_reason == "stop"


def test_a_session_that_nobody_continues_is_empty() -> None:
    session = Session(model(), END, HOT, ["a", "b"])
    session.turn({0: [5], 1: [6]})
    assert session.turn({}) == {}
    assert session.rows == []


def test_a_row_that_was_dropped_does_not_come_back() -> None:
    session = Session(model(), END, HOT, ["a", "b", "c"])
    session.turn({0: [5], 1: [6], 2: [7, 8]})
    assert set(session.turn({2: [9]})) == {2}
    assert set(session.turn({0: [5], 2: [9]})) == {2}
