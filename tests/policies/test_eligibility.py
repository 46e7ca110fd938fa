from __future__ import annotations

from typing import Any

import pytest

from ratchet.contracts.manifest import BaseCheckpoint
from ratchet.errors import EligibilityError
from ratchet.policies.eligibility import refuse_ineligible


def checkpoint(**changes: Any) -> BaseCheckpoint:
    values = {"checkpoint": "package:starter", "licence": "Apache-2.0", "weights_available": True}
    return BaseCheckpoint(**{**values, "training_permitted": True, **changes})


def test_an_open_checkpoint_may_be_trained() -> None:
    refuse_ineligible(checkpoint(), "acme")
    refuse_ineligible(checkpoint(tenants=("acme", "other")), "acme")


@pytest.mark.parametrize(
    ("changes", "field", "seen"),
    [
        ({"weights_available": False, "checkpoint": "some-closed-api"}, "weights_available", False),
        ({"licence": "CC-BY-ND-4.0"}, "licence", "CC-BY-ND-4.0"),
        ({"licence": "proprietary"}, "licence", "proprietary"),
        ({"licence": " "}, "licence", " "),
        ({"training_permitted": False}, "training_permitted", False),
        ({"tenants": ("other",)}, "tenants", "acme"),
    ],
)
def test_an_ineligible_checkpoint_is_refused_by_name(changes: dict[str, Any], field: str, seen: object) -> None:
    base = checkpoint(**changes)
    with pytest.raises(EligibilityError) as caught:
        refuse_ineligible(base, "acme")
    assert caught.value.culprit == f"base checkpoint {base.checkpoint}: {field}"
    assert caught.value.seen == seen


def test_no_other_tenant_gets_in_by_an_empty_list() -> None:
    with pytest.raises(EligibilityError):
        refuse_ineligible(checkpoint(tenants=()), "acme")
