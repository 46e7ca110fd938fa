"""tau-bench results: arrays, or lines, of `{task_id, reward, info, traj, trial}`.

`traj` holds OpenAI chat messages; many reuse a call id, and many end on a tool message, because transferring to a
person ends the run. The `reward` is what the benchmark says of the run: it is kept beside it and is not taken as a
score, since nobody here computed it. A run that failed before its first message has no trajectory and is set aside.
"""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.contracts.canonical import digest
from ratchet.intake.jsontext import Value
from ratchet.intake.messages import Conversation, records_of
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import roots

TITLE = "tau-bench results"
LINES = True
KEPT = (
    "messages as those of OpenAI chat; `task_id` as the task; `reward`, `info` (task, expected actions, reward "
    "details) and `trial` under `extra.tau_bench`, the reward never as a score"
)
DROPPED = "the spacing inside argument strings"


def sniff(head: bytes, name: str) -> bool:
    """Whether records have a task, a reward and a `traj`."""
    return any({"task_id", "reward", "info"} <= set(keys) and "traj" in keys for keys in roots(head))


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per run."""
    return records_of(data, _record)


def _record(item: Value) -> Record:
    body = item.value
    messages = body.get("traj")
    if not isinstance(messages, list) or not messages:
        raise Unreadable("no_messages", "traj must be an array with at least one message")
    chat = Conversation(lambda: digest(body)[:12], "tau_bench", item.anomalies)
    for message in messages:
        chat.add(message)
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": {"name": "tau-bench", "version": "unknown"},
        "steps": chat.steps,
        "extra": {"tau_bench": {key: value for key, value in body.items() if key != "traj"}},
    }
    task = body.get("task_id")
    claims = {} if task is None else {"task_id": str(task)}
    return Record(item.number, item.offset, item.raw, document, claims, chat.anomalies())
