"""Held-out evaluation: rows that are kept for good, statistics with proofs, economics, scorecards and the report."""
