"""Thin adapters to the outside. They may import `ratchet`; nothing in `ratchet` imports them."""
