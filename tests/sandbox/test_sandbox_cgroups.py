"""Control groups: the record of refusals in both versions' formats, limits, labels, and a real group."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.sandbox import cgroups


def test_counters_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n")
    (tmp_path / "pids.events").write_text("max 7\n")
    assert cgroups.Group([tmp_path]).counters() == (1, 7)


def test_counters_of_version_1(tmp_path: Path) -> None:
    for name, text in {
        "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
        "pids/pids.events": "max 2\n",
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert cgroups.Group([tmp_path / "memory", tmp_path / "pids"]).counters() == (4, 2)


def test_limits_are_written_in_the_words_of_version_2(tmp_path: Path) -> None:
    for name in ("memory.max", "memory.swap.max", "pids.max"):
        (tmp_path / name).write_text("max")
    cgroups._limit(tmp_path, 1 << 20, 5)
    assert [(tmp_path / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")] == [
        "1048576",
        "0",
        "5",
    ]


def test_label_names_this_process_and_is_no_orphan() -> None:
    name = cgroups.label("0.x")
    assert f"-{os.getpid()}-" in name
    assert not cgroups._is_orphan(name)


def test_label_of_a_recycled_pid_is_an_orphan() -> None:
    assert cgroups._is_orphan(f"{cgroups.PREFIX}{cgroups._pid_namespace()}-{os.getpid()}-1-0.x")


def test_group_is_made_limited_and_removed() -> None:
    group = cgroups.create(cgroups.label("test"), memory_mb=64, processes=7)
    if group is None:
        pytest.skip("this user may not make control groups")
    assert group.counters() == (0, 0)
    assert any((path / "pids.max").exists() and (path / "pids.max").read_text() == "7\n" for path in group.paths)
    group.remove()
    assert not any(path.exists() for path in group.paths)
