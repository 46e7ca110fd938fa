"""Rollouts: engines that sample tokens, and the loop that runs many episodes at once."""
