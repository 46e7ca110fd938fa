"""Fixtures around the tiny policy; torch runs on one thread, since results depend on the number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny_policy


@pytest.fixture(scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return tiny_policy.build_tokenizer()


@pytest.fixture
def new_model(_one_thread: None) -> Callable[..., Any]:
    return tiny_policy.build_model


@pytest.fixture(scope="session")
def sampler() -> Callable[..., Any]:
    return tiny_policy.sample


@pytest.fixture(scope="session")
def likes_target() -> Callable[[Any], float]:
    return tiny_policy.likes_target
