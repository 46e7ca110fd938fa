"""The loop: one function per stage of an experiment, from tasks to the release decision.

Each stage reads what the stage before it left in the store, does its work once, and finds it done the next time. An
interrupted run goes on where it stopped. Dagster's assets are thin shells around these functions.
"""
