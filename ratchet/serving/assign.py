"""Which arm a live task belongs to: by a hash of its identity, so that neither arrival nor load has a say in it."""

from __future__ import annotations

import hashlib

from ratchet.release.live import Arm

SCALE = 2**64


def arm_of(salt: str, live_id: str, share: float) -> Arm:
    """The arm of a live task.

    Args:
        salt: id of the version in canary, so that every canary meets another sample of the tasks.
        live_id: identity of the task; the same one is in the same arm however often it comes.
        share: share of the tasks in the canary, from the manifest, in [0, 1].
    """
    hashed = hashlib.sha256(f"{salt}\0{live_id}".encode("utf-8", "surrogatepass")).digest()
    return "canary" if int.from_bytes(hashed[:8], "big") < share * SCALE else "production"
