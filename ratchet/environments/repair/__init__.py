"""`repair`: find the one bug in a function that nobody here wrote. See `environment.py`."""

from ratchet.environments.repair.environment import RepairEnvironment

__all__ = ["RepairEnvironment"]
