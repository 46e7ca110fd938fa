"""One use at a time, together for those who want the same, in the order of arrival."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratchet.rollouts.sharing import Sharing

WAIT_S = 20.0


def test_those_who_want_the_same_are_inside_together() -> None:
    sharing, together = Sharing(), threading.Barrier(4)

    def meet() -> float:
        with sharing.inside("a") as since:
            together.wait(WAIT_S)
            return since

    with ThreadPoolExecutor(4) as pool:
        assert len({one.result() for one in [pool.submit(meet) for _ in range(4)]}) == 1


def test_different_uses_are_never_inside_together() -> None:
    sharing, inside, wrong = Sharing(), [], []

    def use(number: int) -> None:
        rng = random.Random(number)
        for _ in range(40):
            what = rng.choice("abc")
            with sharing.inside(what):
                inside.append(what)
                wrong.extend(other for other in list(inside) if other != what)
                time.sleep(rng.random() / 2000)
                inside.remove(what)

    with ThreadPoolExecutor(8) as pool:
        for one in [pool.submit(use, number) for number in range(8)]:
            one.result(WAIT_S)
    assert wrong == []


def test_who_waits_for_another_use_is_not_overtaken_by_more_of_the_same() -> None:
    sharing, order = Sharing(), []

    def use(what: str, number: int) -> None:
        with sharing.inside(what):
            order.append((what, number))

    with ThreadPoolExecutor(3) as pool:
        with sharing.inside("a"):
            waiting = []
            for number, what in enumerate("bab"):
                waiting.append(pool.submit(use, what, number))
                while len(sharing._waiting) <= number:
                    time.sleep(0.001)
            assert order == []
        for one in waiting:
            one.result(WAIT_S)
    assert order == [("b", 0), ("a", 1), ("b", 2)]


def test_a_use_that_fails_is_over() -> None:
    sharing = Sharing()
    with pytest.raises(ValueError, match="x"), sharing.inside("a"):
        raise ValueError("x")
    with sharing.inside("b"):
        pass
