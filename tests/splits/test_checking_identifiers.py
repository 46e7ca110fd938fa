"""Identifiers of held-out tasks in training data: mentions are found, look-alikes are not."""

from __future__ import annotations

import pytest
from split_tasks import document, layers, made, task

from ratchet.contracts.environment import Task
from ratchet.splits import SplitLock, check


@pytest.mark.parametrize(
    "text",
    [
        "from HumanEval/1, see there",
        "humaneval-1",
        "(human_eval_1)",
        "HumanEval1.py",
        "see https://github.com/owner/tool/issues/12",
        "owner/tool/pull/12 fixes it",
        "in OWNER/TOOL#12.",
        "owner__tool-12",
        "git checkout 3f2a9cd1e4",
        "bugs.example.org/show/881",
        "the task HumanEval/1/4",
    ],
)
def test_mention_of_a_heldout_identifier_is_found(named: tuple[SplitLock, list[Task]], text: str) -> None:
    certificate = check(*named, [document(f"Some log line.\n{text}\nAnd more of it.")])
    assert layers(certificate, "HumanEval/1/4") == {"identifiers"}
    assert (
        "Some log line" in certificate.findings[0].document_text
        or "some log line" in certificate.findings[0].document_text
    )


@pytest.mark.parametrize(
    "text",
    [
        "HumanEval/12 and HumanEval/11",
        "myHumanEval/1x",
        "HumanEval scored 1",
        "HumanEval/1.5",
        "owner/tool#120 and owner/tools#12",
        "issue 12 of the owner, tool 12",
        "git checkout 3f2a9",
        "bugs.example.org/show/8815",
    ],
)
def test_other_identifiers_are_not_mistaken(named: tuple[SplitLock, list[Task]], text: str) -> None:
    certificate = check(*named, [document(text)])
    assert certificate.passed, certificate.findings


@pytest.mark.parametrize(
    "identifier",
    ["HumanEval/1", "humaneval/1", "git@github.com:owner/tool.git#12", "https://gitlab.com/owner/tool/-/issues/12"],
)
def test_identifier_of_a_document_is_compared(named: tuple[SplitLock, list[Task]], identifier: str) -> None:
    assert not check(*named, [document("no text", identifiers=[identifier])]).passed


def test_renames_of_a_repo_are_known() -> None:
    pool = [task(f"t{number}", f"the loop number {number} is wrong") for number in range(5)]
    locked = made(pool, 1, 1, 1, aliases={"first/name": "owner-t0/code-t0", "mirror/name": "owner-t0/code-t0"})
    protected = dict((*locked.validation, *locked.heldout))
    certificate = check(
        locked, pool, [document("x", identifiers=["mirror/name"]), document("as in first/name and so on")]
    )
    assert len(certificate.findings) == (2 if "t0" in protected else 0)
    seeds = [made(pool, 1, 1, 1, seed=seed, aliases={"mirror/name": "owner-t0/code-t0"}) for seed in range(20)]
    hit = next(one for one in seeds if "t0" in dict(one.heldout))
    assert not check(hit, pool, [document("x", identifiers=["mirror/name"])]).passed
    assert not check(hit, pool, [document("as in mirror/name and so on")]).passed
