"""The doors: evidence is issued by its owner alone, and opens nothing once a byte of it has changed."""

import contextvars
import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from ratchet.contracts.canonical import digest
from ratchet.contracts.evidence import Evidence
from ratchet.errors import IntegrityError
from ratchet.splits import SplitLock


class Pass(Evidence, owner="ratchet.gatehouse"):
    holder: str
    number: int = 1
    facts: dict[str, Any] = Field(default_factory=dict)


class OtherPass(Evidence, owner="ratchet.gatehouse"):
    holder: str
    number: int = 1
    facts: dict[str, Any] = Field(default_factory=dict)


ISSUED = Pass.issue(holder="ann", number=3, facts={"a": [1]})


@pytest.mark.parametrize(
    "forge",
    [
        lambda: Pass(holder="eve"),
        lambda: Pass.model_validate({"holder": "eve"}),
        lambda: Pass.model_validate_json('{"holder": "eve"}'),
        lambda: Pass.model_construct(holder="eve"),
        lambda: ISSUED.model_copy(update={"holder": "eve"}),
        lambda: ISSUED.copy(update={"holder": "eve"}),
    ],
)
def test_nobody_makes_evidence_beside_its_stage(forge) -> None:
    with pytest.raises(IntegrityError, match=r"ratchet\.gatehouse") as caught:
        forge()
    assert caught.value.culprit == "Pass"


def test_real_evidence_is_closed_in_the_same_way() -> None:
    with pytest.raises(IntegrityError, match=r"made only by ratchet\.splits"):
        SplitLock(train=())


def test_issuing_one_kind_does_not_open_another() -> None:
    class Nosy(Evidence, owner="ratchet.gatehouse"):
        inner: str

        def model_post_init(self, context: Any) -> None:
            Pass(holder=self.inner)

    with pytest.raises(IntegrityError, match="Pass"):
        Nosy.issue(inner="eve")


def test_a_failed_issue_leaves_the_door_closed() -> None:
    with pytest.raises(ValueError, match="number"):
        Pass.issue(holder="ann", number="many")
    with pytest.raises(IntegrityError):
        Pass(holder="eve")


def test_an_open_door_is_not_seen_by_other_threads() -> None:
    # A thread starts from a context of its own, as this one does.
    with pytest.raises(IntegrityError):
        contextvars.Context().run(lambda: Pass(holder="eve"))


def test_a_copy_without_changes_is_the_same_evidence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ISSUED.model_copy() == ISSUED == ISSUED.copy()
    assert ISSUED.model_copy(deep=True).digest == ISSUED.digest


def test_what_is_stored_reads_back_as_it_was() -> None:
    assert Pass.reopen(ISSUED.to_bytes(), "pass.json") == ISSUED


@given(st.data())
def test_no_changed_byte_opens_anything(data: st.DataObject) -> None:
    stored = ISSUED.to_bytes()
    place = data.draw(st.integers(0, len(stored) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != stored[place]))
    with pytest.raises(IntegrityError, match=r"pass\.json"):
        Pass.reopen(stored[:place] + bytes([other]) + stored[place + 1 :], "pass.json")


@given(st.integers(0, len(ISSUED.to_bytes()) - 1))
def test_half_a_file_opens_nothing(length: int) -> None:
    with pytest.raises(IntegrityError):
        Pass.reopen(ISSUED.to_bytes()[:length], "pass.json")


def _stored(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({"kind": kind, "content": content, "digest": digest({"kind": kind, "content": content})}).encode()


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (_stored("OtherPass", {"holder": "ann", "number": 1, "facts": {}}), "a Pass is needed here"),
        (_stored("Pass", {"holder": "ann", "number": "many", "facts": {}}), "valid Pass"),
        (_stored("Pass", {"holder": "ann", "number": 1, "facts": {}, "more": 1}), "valid Pass"),
        (_stored("Pass", {"holder": "ann"}), "must read back"),
        (b"[]", "one stored Pass"),
        (b'{"kind": "Pass"}', "one stored Pass"),
        (b"\xff", "one stored Pass"),
    ],
)
def test_a_rightly_digested_file_of_the_wrong_content_opens_nothing(data: bytes, rule: str) -> None:
    with pytest.raises(IntegrityError, match=rule):
        Pass.reopen(data, "pass.json")


def test_content_that_was_changed_in_memory_is_not_written_under_its_old_digest_unnoticed() -> None:
    mine = Pass.issue(holder="ann", facts={"a": 1})
    assert mine.digest
    mine.facts["a"] = 2
    with pytest.raises(IntegrityError, match="digest must match"):
        Pass.reopen(mine.to_bytes(), "pass.json")


def test_kind_is_part_of_the_identity() -> None:
    assert Pass.issue(holder="ann").digest != OtherPass.issue(holder="ann").digest
