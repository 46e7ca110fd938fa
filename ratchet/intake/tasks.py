"""What logs of the SWE-bench family say about the task: repo and report by its id, and the patch that was handed in.

Owner and name are joined by two underscores in all of them; what follows differs:

- SWE-bench, SWE-Gym: `django__django-12345`, a pull request; SWE-agent itself: `owner__name-i12`, an issue;
- SWE-smith: `owner__name.1a2b3c4d.what_was_done__hash`, at a commit; `pr_12` as the last part names a pull request;
- SWE-bench Pro: `instance_owner__name-<40 hex digits>-v...`, at a commit.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

PATCH = "submission.diff"
"""Name of the file that stands for a submitted patch: logs of runs hold the change, not the files after it."""
_INSTANCE = re.compile(
    r"(?:instance_)?(?P<owner>[A-Za-z0-9][A-Za-z0-9-]*)__(?P<name>[A-Za-z0-9._-]+?)"
    r"(?:-i?(?P<number>\d+)|\.[0-9a-f]{8}\.(?:pr_(?P<pull>\d+)|\S+)|-[0-9a-f]{40}(?:-v\S*)?)"
)
_ENDINGS = re.compile(r"(?:\.(?:traj|json|jsonl|gz|zst|parquet))+$")
_TOUCHED = re.compile(r"^diff --git a/(\S+) b/(\S+)\r?$", re.MULTILINE)
_ISSUE_URL = re.compile(r"https?://(?:www\.)?github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)/?")


def instance_claims(instance: str) -> dict[str, Any]:
    """Return `task_id`, and `repo` and `issue_id` where the id names them."""
    claims = {"task_id": instance}
    match = _INSTANCE.fullmatch(instance)
    if match:
        claims["repo"] = f"{match['owner']}/{match['name']}"
        number = match["number"] or match["pull"]
        if number:
            claims["issue_id"] = f"{claims['repo']}#{number}"
    return claims


def named_claims(source: str) -> dict[str, Any]:
    """Return the claims of the instance id that a source is named after (`runs/owner__name-12.traj`), else none."""
    stem = _ENDINGS.sub("", PurePosixPath(source).name)
    claims = instance_claims(stem)
    return claims if "repo" in claims else {}


def url_claims(url: str) -> dict[str, Any]:
    """Return `repo` and `issue_id` of a GitHub issue's or pull request's address; nothing for another address."""
    match = _ISSUE_URL.fullmatch(url.strip())
    return {"repo": match[1], "issue_id": f"{match[1]}#{match[2]}"} if match else {}


def submission_claims(status: Any, holder: dict[str, Any], field: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (claims, what is left of the holder): a submitted patch is the deliverable, as its only file.

    Args:
        status: how the run says that it ended; `submitted`, also `submitted (exit_cost)` and `Submitted`, hands in.
        holder: what holds the patch.
        field: under which name.
    """
    patch = holder.get(field)
    if not isinstance(patch, str):
        patch = None
    if not isinstance(status, str) and patch is None:
        return {}, holder
    submitted = isinstance(status, str) and status.lower().startswith("submitted")
    left = {key: value for key, value in holder.items() if key != field or not patch}
    return {"deliverable": deliverable(submitted, patch)}, left


def deliverable(submitted: bool, patch: Any) -> dict[str, Any]:
    """Return the deliverable of a patch: its text as the only file, and the names of the files that it touches."""
    text = patch if isinstance(patch, str) else ""
    names = sorted({name for match in _TOUCHED.finditer(text) for name in match.groups()})
    return {"submitted": submitted, "files": {PATCH: text} if text else {}, "touched": names}
