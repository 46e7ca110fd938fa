"""Serving: versions that answer live tasks, as the release ledger says, and what became of each task."""
