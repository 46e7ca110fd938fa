"""Ratchet: a governed learning loop for agent policies.

The packages read in the order the data flows: contracts, rights, intake, splits, rewards, sandbox, environments,
policies, rollouts, methods, evaluation, release, cli. Nothing in here imports dagster, mlflow or great_expectations.
"""

__version__ = "0.1.0"
