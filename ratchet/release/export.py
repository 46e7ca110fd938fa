"""A released version in a folder of its own, which can be verified on a machine that has nothing of the home.

    SHA256SUMS              of every other file: `sha256sum -c SHA256SUMS`
    release.jsonl           the version, its decision, and every event of its line of the release ledger
    rights.jsonl            the rights ledger: events of the grants behind it in full, all others as their digest
    store/...               every file of the evidence, the bundle, certificates and signatures, named as in the store

It holds rows of the held-out evaluation, which name tasks and say what became of them, but no task and no trajectory.
Keys are not in it: whose signature counts is for the reader to say.
"""

from __future__ import annotations

from pathlib import Path

from ratchet.errors import IntegrityError, RatchetError
from ratchet.release.certificate import certificate_name
from ratchet.release.erasures import certificates
from ratchet.release.evidence import latest_bundle, latest_pointer
from ratchet.release.ledger import Ledger
from ratchet.release.recorded import from_bytes, recorded, to_bytes
from ratchet.release.records import Version
from ratchet.release.signing import envelopes
from ratchet.release.trust import Trust
from ratchet.release.verify import Finding, Source, verify
from ratchet.rights import Ledger as RightsLedger
from ratchet.rights.excerpt import Excerpt, excerpt
from ratchet.store import LocalStore, Store, open_store
from ratchet.store.base import file_digest

SUMS, RELEASE, RIGHTS, STORE = "SHA256SUMS", "release.jsonl", "rights.jsonl", "store"


def home_source(home: Path, version: Version, trust: Trust | None = None) -> Source:
    """The evidence of a version as it lies in its home.

    Raises:
        IntegrityError: the chain of the release ledger or of the rights ledger is broken.
    """
    return Source(
        open_store(home, remember=False),
        recorded(Ledger.of(home), version),
        RightsLedger.at_home(home).as_of,
        trust or Trust.of(home),
    )


def is_export(folder: Path) -> bool:
    """Whether a folder is an export, or what is left of one."""
    return any((folder / name).is_file() for name in (SUMS, RELEASE))


def export_version(home: Path, version: Version, folder: Path) -> int:
    """Write everything that a version was released on into a new folder; returns the number of files.

    It is written as it is: an export of what was changed says so when it is verified.

    Raises:
        IntegrityError: there is no evidence, or what it is read with is broken; the folder is then not complete.
    """
    if folder.exists() and any(folder.iterdir()):
        raise IntegrityError(str(folder), rule="it must be new or empty", remedy="name another folder")
    source = home_source(home, version)
    bundle = latest_bundle(source.store, version.id)
    if bundle is None:
        raise IntegrityError(
            f"evidence of {version.label}",
            rule="there is none: only a version that was decided on has it",
            remedy="choose the version that `ratchet history` shows as decided",
        )
    names = {one.name for one in bundle.files if one.role != "checkpoint"} | set(envelopes(source.store, version.id))
    names |= {name for name in source.store.names(f"evidence/{version.id}") if name.endswith(".json")}
    names = {name for name in names if source.store.exists(name)} | set(certificates(source.store, version.tenant))
    if bundle.certificate is not None:
        names.add(certificate_name(version.id, bundle.decision_digest))
    target = LocalStore(folder / STORE)
    for name in sorted(names):
        target.create_same(name, source.store.read(name))
    target.publish_folder(source.store.folder(version.policy.checkpoint), version.policy.checkpoint)
    pointer = latest_pointer(version.id)
    target.swap(pointer, None, str(source.store.pointer(pointer)))
    _drop_locks(folder)
    (folder / RELEASE).write_bytes(to_bytes(source.record))
    grants = {name.rsplit("/", 1)[0] for name in bundle.grants}
    with (folder / RIGHTS).open("wb") as out:
        out.writelines(excerpt(RightsLedger.at_home(home), grants))
    sums = {name: file_digest(folder / name) for name in _files(folder)}
    (folder / SUMS).write_text("".join(f"{value}  {name}\n" for name, value in sums.items()), encoding="utf-8")
    return len(sums) + 1


def verify_export(folder: Path, trust: Trust) -> list[Finding]:
    """Verify an exported folder, with the keys that the reader trusts: its sums, then all that `verify` looks at."""
    found = _sums(folder)
    try:
        release, rights = folder / RELEASE, folder / RIGHTS
        record = from_bytes(_read(release), str(release))
        as_of = Excerpt(_read(rights), str(rights)).as_of
    except RatchetError as error:
        return [*found, Finding("ledger", False, f"{error.culprit}: {error.rule}")]
    return [*found, *verify(Source(_store(folder), record, as_of, trust))]


def _store(folder: Path) -> Store:
    return LocalStore(folder / STORE)


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise IntegrityError(str(path), rule="it must be in the export", remedy="have the version exported again")
    return path.read_bytes()


def _sums(folder: Path) -> list[Finding]:
    """A finding for every file that is not as `SHA256SUMS` has it, is missing, or is not listed."""
    sums = folder / SUMS
    try:
        lines = [line.split("  ", 1) for line in _read(sums).decode("utf-8").splitlines()]
        stated = {name: value for value, name in lines}
    except (RatchetError, ValueError) as error:
        return [Finding("sums", False, f"{sums}: it must list a SHA-256 and a name in each line ({error})")]
    there = set(_files(folder))
    wrong = [f"{name}: it is not listed in {SUMS}" for name in sorted(there - stated.keys())]
    for name, value in sorted(stated.items()):
        if name not in there:
            wrong.append(f"{name}: it is missing")
        elif (seen := file_digest(folder / name)) != value:
            wrong.append(f"{name}: its SHA-256 is {seen}, and {SUMS} has {value}")
    if wrong:
        return [Finding("sums", False, words) for words in wrong]
    return [Finding("sums", True, f"{len(stated)} files as {SUMS} has them")]


def _files(folder: Path) -> list[str]:
    """Every file of an export but the sums, by its name in it."""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [name for name in found if name != SUMS]


def _drop_locks(folder: Path) -> None:
    """Remove what the store left behind while it wrote: locks are no part of an export."""
    for path in folder.rglob(".*"):
        if path.is_file():
            path.unlink()
