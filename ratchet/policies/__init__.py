"""Policies: checkpoints, tokenizers, and how text becomes tokens and calls."""
