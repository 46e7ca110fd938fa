"""Identifiers of held-out tasks in training data: mentions are found, look-alikes are not."""

from __future__ import annotations

import pytest
from split_tasks import AT, MANIFEST, document, layers, made, task

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import Splits
from ratchet.splits import SplitLock, check, lock


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
        "https://github.com/owner/tool/issues/12?from=mail#issuecomment-9",
        "https://gitlab.com/owner/tool/-/merge_requests/12",
        "git@github.com:owner/tool.git#12",
        "owner/tool GH-12",
        "owner/tool pull request 12",
        "https%3A%2F%2Fgithub.com%2Fowner%2Ftool%2Fissues%2F12",
        "owner%252Ftool%252312",
        "owner\\/tool\\/issues\\/12",
        "owner\\u002ftool#12",
        "owner&#x2F;tool#12",
        "owner/\u200btool#1\u00ad2",
        "\uff4f\uff57\uff4e\uff45\uff52/tool#12",
        "pip install git+https://github.com/owner/tool@3f2a9cd1",
        "bugs.example.org%2Fshow%2F881",
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
        "my-owner/tool#12",
        "HumanEval/1.5%20and%20HumanEval%2F11",
    ],
)
def test_other_identifiers_are_not_mistaken(named: tuple[SplitLock, list[Task]], text: str) -> None:
    certificate = check(*named, [document(text)])
    assert certificate.passed, certificate.findings


@pytest.mark.parametrize(
    "identifier",
    [
        "HumanEval/1",
        "humaneval/1",
        "git@github.com:owner/tool.git#12",
        "https://gitlab.com/owner/tool/-/issues/12",
        "https://github.com/owner/tool/pull/12/files?w=1#diff-3",
        "https://github.com/owner/tool/commit/3f2a9cd1",
    ],
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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("as in pytest-dev/pytest.", True),
        ("clone https://github.com/pytest-dev/pytest.git now", True),
        ("pytest-dev__pytest-5103", True),
        ("pytest-dev/pytest-5103", True),
        ("as in pytest-dev/pytest-xdist", False),
        ("my-pytest-dev/pytest", False),
        ("pytest-dev/pytest.py", False),
        ("the pytest dev pytest team", False),
    ],
)
def test_name_of_a_repo_is_told_from_its_neighbours(text: str, found: bool) -> None:
    pool = [task(f"t{number}", f"the loop number {number} is wrong") for number in range(6)]
    pool.append(task("target", "short text", repo="pytest-dev/pytest"))
    locked = next(
        one for one in (made(pool, 2, 1, 2, seed=seed) for seed in range(40)) if "target" in dict(one.heldout)
    )
    assert check(locked, pool, [document(f"Some line.\n{text}\nAnd more.")]).passed != found


def test_link_to_an_issue_is_found_where_the_repo_may_be_shared() -> None:
    pool = [task(f"t{number}", f"the loop number {number} is wrong") for number in range(6)]
    pool.append(task("target", "short text", repo="owner/tool", issue="owner/tool#12"))
    rule = Splits(train=2, validation=1, heldout=2, group_by=("issue_id", "prompt"))
    made_with_rule = (lock(pool, rule, seed=seed, at=AT, manifest_digest=MANIFEST) for seed in range(40))
    locked = next(one for one in made_with_rule if "target" in dict(one.heldout))
    for text in ("owner/tool#12", "https://github.com/owner/tool/pull/12/files", "owner/tool GH-12", "owner__tool-12"):
        assert not check(locked, pool, [document(f"see {text} for more")]).passed, text
    for text in ("owner/tool", "owner/tool#120", "https://github.com/owner/tool/issues/1"):
        assert check(locked, pool, [document(f"see {text} for more")]).passed, text
