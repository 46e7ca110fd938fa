"""Parts and batches made without a reader, for the tests of the writer, the reader and the erasure."""

from collections.abc import Iterable
from pathlib import Path

from intake_world import NOW, trajectory

from ratchet.contracts.canonical import canonical_json, digest_bytes
from ratchet.contracts.trajectory import Trajectory
from ratchet.intake.batch import BatchWriter
from ratchet.intake.handover import Part
from ratchet.intake.keys import Keys
from ratchet.intake.published import Source
from ratchet.intake.rows import INDEX_COLUMNS, TRAJECTORY_COLUMNS, EventRows, event_rows, index_row, table
from ratchet.store import Store

PHRASE = "the heron never lands twice"


def rejected(text: str) -> dict:
    """A quarantine entry."""
    import base64

    return {
        "code": "broken", "reason": "it is broken", "source": "x", "number": 0, "offset": 0,
        "digest": digest_bytes(text.encode()), "bytes": len(text),
        "content_base64": base64.b64encode(text.encode()).decode(),
    }  # fmt: skip


def part(logs: Iterable[Trajectory], quarantine: Iterable[dict] = ()) -> Part:
    """What a worker would make of these logs."""
    items = [(log.digest, log.model_dump(mode="json", exclude_none=True)) for log in logs]
    place = {"source": "x", "offset": 0, "format": "atif"}
    documents = [{"digest": name, "document": canonical_json(log)} for name, log in items]
    events = EventRows()
    for name, log in items:
        events.add(event_rows(log), name)
    return Part(
        table(documents, TRAJECTORY_COLUMNS),
        table([index_row(log, name, place, NOW) for name, log in items], INDEX_COLUMNS),
        events.table(),
        list(quarantine),
    )


def logs(numbers: Iterable[int], grant_id: str = "g", tenant: str = "acme", **extra) -> list[Trajectory]:
    """Honest episodes of a grant."""
    return [
        log.with_ratchet(log.ratchet.model_copy(update={"grant_id": grant_id, "tenant": tenant}))
        for log in (trajectory(number, **extra) for number in numbers)
    ]


def put(
    store: Store, home: Path, numbers: Iterable[int], *, grant_id: str = "g", tenant: str = "acme", aside: str = ""
) -> str | None:
    """Publish a batch of logs under a grant, with an original and, where `aside` is given, a rejected piece."""
    numbers = list(numbers)
    with BatchWriter(store, Keys(home), tenant=tenant, grant_id=grant_id) as writer:
        writer.add(part(logs(numbers, grant_id, tenant), [rejected(aside)] if aside else []))
        data = f"{grant_id} {PHRASE} {numbers}".encode()
        digest = digest_bytes(data)
        source = Source(name=f"{grant_id}.jsonl", digest=digest, format="atif", raw=writer.raw(data, digest))
        return writer.publish(NOW, [source])


def everything(store: Store) -> dict[str, bytes]:
    """All objects of a store."""
    return {name: store.read(name) for name in store.names(".")}
