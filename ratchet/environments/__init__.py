"""Environments that ship with Ratchet. Each registers through the entry point group `ratchet.environments`."""
