"""Shared by the tests of this folder: the environment on a real sandbox."""

from repair_world import environment, problems, sandbox, tasks

__all__ = ["environment", "problems", "sandbox", "tasks"]
