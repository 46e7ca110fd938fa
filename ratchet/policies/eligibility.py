"""Eligibility: whether a base checkpoint may be trained at all, decided before any compute is spent.

A checkpoint is eligible when its weights are available, its licence allows derived weights, its owner permits training
and the tenant is one of those named. Being allowed to *run* a model says nothing about any of these.

Not covered: whether a licence allows the *use* that the tenant makes of the result (a non-commercial licence is not
refused here; `training_permitted` is where the owner of the experiment states that the use is allowed).
"""

from __future__ import annotations

import fnmatch

from ratchet.contracts.manifest import BaseCheckpoint
from ratchet.errors import EligibilityError

FORBIDDEN = (
    "cc-by-nd-*",
    "cc-by-nc-nd-*",
    "none",
    "noassertion",
    "unlicensed",
    "unknown",
    "proprietary",
    "licenseref-proprietary*",
    "licenseref-closed*",
)
"""Patterns of licence ids, in lower case, that forbid derived weights or permit nothing (SPDX ids or none)."""


def refuse_ineligible(base: BaseCheckpoint, tenant: str) -> None:
    """Return where `base` may be trained for `tenant`.

    Raises:
        EligibilityError: names the checkpoint and the first reason: closed weights, licence, no permission to train,
            another tenant's checkpoint.
    """
    if not base.weights_available:
        raise _ineligible(
            base,
            "weights_available",
            False,
            "weights must be available; a model behind a closed API cannot be trained",
            "choose a checkpoint with open weights, or search the harness, which leaves the weights unchanged",
        )
    licence = base.licence.strip().lower()
    if not licence or any(fnmatch.fnmatchcase(licence, pattern) for pattern in FORBIDDEN):
        raise _ineligible(
            base,
            "licence",
            base.licence,
            "the licence must allow derived weights",
            "choose a checkpoint whose licence does, or state the licence that its owner granted",
        )
    if not base.training_permitted:
        raise _ineligible(
            base,
            "training_permitted",
            False,
            "licence and owner must permit training; permission to run is not enough",
            "get the permission and record it, or choose another checkpoint",
        )
    if "*" not in base.tenants and tenant not in base.tenants:
        raise _ineligible(
            base,
            "tenants",
            tenant,
            f"it may be trained for {sorted(base.tenants)} only",
            "choose a checkpoint of this tenant",
        )


def _ineligible(base: BaseCheckpoint, field: str, seen: object, rule: str, remedy: str) -> EligibilityError:
    return EligibilityError(f"base checkpoint {base.checkpoint}: {field}", seen=seen, rule=rule, remedy=remedy)
