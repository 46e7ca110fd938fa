"""Garbage is searched for seldom while any batch runs, and as before when none does."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from ratchet.rollouts.garbage import YOUNG, seldom_collected


@pytest.fixture(autouse=True)
def as_usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def state() -> tuple[tuple[int, int, int], bool]:
    return gc.get_threshold(), gc.get_freeze_count() > 0


def test_it_is_seldom_while_one_is_open_and_as_before_when_the_last_is_closed() -> None:
    usual, seldom = ((700, 10, 10), False), ((YOUNG, 10, 10), True)
    with seldom_collected():
        assert state() == seldom
        with pytest.raises(ValueError, match="inner"), seldom_collected():
            raise ValueError("inner")
        assert state() == seldom
    assert state() == usual


def test_threads_that_overlap_leave_it_as_it_was() -> None:
    together = Barrier(4)

    def one(number: int) -> tuple[tuple[int, int, int], bool]:
        with seldom_collected():
            together.wait(30)
            return state()

    with ThreadPoolExecutor(4) as pool:
        # The first to leave must not end it for the others.
        assert list(pool.map(one, range(4))) == [((YOUNG, 10, 10), True)] * 4
    assert state() == ((700, 10, 10), False)


@pytest.mark.parametrize("own", [(0, 10, 10), (50_000, 5, 5)])
def test_who_searches_less_keeps_his_way(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with seldom_collected():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_cycles_are_still_found() -> None:
    class Node:
        pass

    with seldom_collected():
        node = Node()
        node.itself = node  # type: ignore[attr-defined]
        gone = weakref.ref(node)
        del node
        kept = [[] for _ in range(2 * YOUNG)]
        assert gone() is None
    assert len(kept) > YOUNG
