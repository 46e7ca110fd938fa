"""The incumbent: the version in production of an experiment's line, pinned once in the run's folder.

An evaluation pins it when it is opened (`incumbent.json`), a candidate that says `start: incumbent` when its training
starts (`start.json`). What is pinned stays, whatever moves in the ledger meanwhile: the decision names the version it
was taken against, and the ledger refuses a promotion against one that is in production no longer. Where nothing is in
production, the baseline of the manifest is the incumbent.
"""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from ratchet.contracts.evidence import Evidence
from ratchet.contracts.policy import Policy, widened
from ratchet.errors import ContaminationError, EvaluationError, PermissionsError, RatchetError, TrainingError
from ratchet.loop.affected import refuse_affected
from ratchet.loop.context import Run, reopen_run
from ratchet.loop.data import Certified, certificate
from ratchet.loop.lineage import Learner, Lineage, descent
from ratchet.policies.checkpoint import verified
from ratchet.policies.record import read_policy
from ratchet.release.certificate import verify_certificate
from ratchet.release.ledger import Ledger
from ratchet.release.records import Version

NAME = "incumbent"
"""What a policy from production is called in the run that it is compared in; no candidate may have that name."""


class Pinned(Evidence, owner="ratchet.loop"):
    """What stood in production at one position of the line."""

    version: str | None = Field(description="Id of the version; None: none was there, so the baseline serves.")
    label: str | None = Field(description="Its name and the start of its id, for people.")
    policy: Policy | None = Field(description="Its policy, under the name that this run knows it by.")
    environment: str | None = Field(description="Environment and version it was released for; None where unknown.")
    seq: int = Field(ge=0, description="Position of the line in the release ledger.")
    at: AwareDatetime = Field(description="When it was looked up.")


def pinned(run: Run) -> Pinned | None:
    """The incumbent of the run's evaluation, verified; None where the evaluation was not opened yet."""
    place = run.name("incumbent.json")
    return Pinned.reopen(run.store.read(place), place) if run.store.exists(place) else None


def reference_names(run: Run) -> list[str]:
    """Names of what the candidates are shown beside: the incumbent, and the baseline where it is another policy."""
    held, place = pinned(run), run.name("policies", "baseline", "policy.json")
    if held is None or held.policy is None or not run.store.exists(place):
        return ["baseline"]
    same = held.policy.digest == read_policy(run.store.read(place), place).digest
    return ["baseline"] if same else [NAME, "baseline"]


def pin(run: Run) -> Pinned:
    """Look up what is in production, once: the incumbent that the run's evaluation compares with.

    Raises:
        EvaluationError: its checkpoint is gone or is not the one that was released; nothing is then pinned.
        PermissionsError: it asks for more than this manifest permits, so that it cannot be run under it.
    """
    return _once(run, "incumbent.json")


def start_version(run: Run) -> Policy | None:
    """The policy that `start: incumbent` means in this run; None where nothing was in production, so the base.

    It is consumed here, so its certificate is verified, and every right behind it is asked.

    Raises:
        IntegrityError, TransitionError: the version's certificate or files are not what was released.
        RightsError: a right behind it has ended.
        TrainingError: it was made from another base checkpoint than this manifest's.
        EvaluationError, PermissionsError: as for `pin`.
    """
    held = _once(run, "start.json")
    if held.version is None:
        return None
    ledger = Ledger.of(run.home)
    verify_certificate(run.store, ledger, held.version)
    refuse_affected(run.home, ledger.version(held.version), run.now())
    return held.policy


def started_from(run: Run) -> Policy | None:
    """What `start_version` returned when the training was prepared, as the training process reads it."""
    place = run.name("start.json")
    return Pinned.reopen(run.store.read(place), place).policy


def origin(run: Run, policy: Policy) -> Policy | None:
    """The version from production behind a policy of a run: itself, or what the first of its stages started from."""
    sections = {section.name: section for section in run.manifest.methods}
    if policy.name not in sections:
        return policy if policy.name == NAME else None
    first = descent(run, policy)[-1]
    return started_from(run) if sections[first.name].start == NAME else None


def ancestors(run: Run, policy: Policy) -> list[Learner]:
    """A version from production and the trained policies that it was made from, in other runs, the nearest first."""
    return [one for one in Lineage(run.home).chain(policy.digest) if one.dataset is not None]


def certified_ancestors(run: Run, policy: Policy) -> list[Certified]:
    """Check what the ancestors learned from against the tasks that this run has locked.

    Raises:
        ContaminationError: an ancestor acted on, or was chosen on, tasks that are locked here.
        TrainingError: an ancestor was made from another base checkpoint: rights and corpus are those of a base.
    """
    found = []
    for one in ancestors(run, policy):
        if one.manifest.base.checkpoint != run.manifest.base.checkpoint:
            raise TrainingError(
                f"start: incumbent, which was made from {one.manifest.base.checkpoint!r}",
                rule=f"this manifest's base is {run.manifest.base.checkpoint!r}, and rights are granted by base",
                remedy="name the same base checkpoint, or start from `base`",
            )
        _refuse_locked(run, one)
        assert one.dataset is not None
        checked = certificate(run, one.dataset)
        checked.certificate.require(run.lock.digest, checked.corpus)
        found.append(checked)
    return found


def _once(run: Run, name: str) -> Pinned:
    run.once(name, lambda: _now(run).to_bytes())
    place = run.name(name)
    return Pinned.reopen(run.store.read(place), place)


def _now(run: Run) -> Pinned:
    slots = Ledger.of(run.home).current(run.manifest.tenant, run.manifest.experiment)
    version = slots.production
    if version is None:
        return Pinned.issue(version=None, label=None, policy=None, environment=None, seq=slots.seq, at=run.now())
    _refuse_missing(run, version)
    _refuse_wider(run, version)
    return Pinned.issue(
        version=version.id,
        label=version.label,
        policy=version.policy.model_copy(update={"name": NAME}),
        environment=_environment(run, version),
        seq=slots.seq,
        at=run.now(),
    )


def _refuse_missing(run: Run, version: Version) -> None:
    try:
        verified(run.store, version.policy.checkpoint, version.policy.weights_digest)
    except RatchetError as error:
        raise EvaluationError(
            f"checkpoint of the incumbent {version.label}",
            seen=version.policy.checkpoint,
            rule=f"candidates are compared with the very files that are in production ({error})",
            remedy="restore the folder, or roll production back: the version then in production is the incumbent",
        ) from None


def _refuse_wider(run: Run, version: Version) -> None:
    found = widened(version.policy.harness, run.environment.spec)
    if found:
        raise PermissionsError(
            f"harness of the incumbent {version.label} asks for {', '.join(found)}",
            rule="incumbent and candidates run under the permissions of one manifest, and this one no longer has that",
            remedy="keep the permission in the manifest, roll production back, or give the experiment another name",
        )


def _environment(run: Run, version: Version) -> str | None:
    run_id = f"{version.experiment}-{version.manifest_digest[:12]}"
    if not run.store.exists(f"experiments/{run_id}/manifest.json"):
        return None
    section = reopen_run(run.home, run_id).manifest.environment
    return f"{section.name} {section.version}"


def _refuse_locked(run: Run, one: Learner) -> None:
    """Raise ContaminationError where an ancestor's experiment used tasks that this run decides on."""
    with reopen_run(run.home, one.run_id) as other:
        lock = other.lock
    learned, chosen = ({held for _, held in entries} for entries in (lock.train, lock.validation))
    shared = [name for name, held in run.lock.heldout if held in learned | chosen]
    shared += [name for name, held in run.lock.validation if held in learned]
    if shared:
        raise ContaminationError(
            f"start: incumbent, whose ancestor {one.policy.name} of {one.run_id} used {len(shared)} tasks locked here",
            seen=", ".join(shared[:3]),
            rule="no policy is decided on tasks that it, or a policy it started from, learned from or was chosen on",
            remedy="use the splits of that experiment (the same seed and sizes), or start from `base`",
        )
