"""Dagster assets and checks: thin shells around the stages of the loop, with what a person wants to see of each."""
