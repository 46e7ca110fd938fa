"""From tasks to data that may be learned from: catalogue, lock, first logs, contamination."""

from __future__ import annotations

import gzip
import importlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ratchet.contracts.canonical import canonical_json, digest, digest_bytes
from ratchet.contracts.manifest import LogSection, Purpose
from ratchet.contracts.trajectory import Trajectory
from ratchet.errors import ManifestError, NothingToLearn
from ratchet.intake import index, trajectories, write_atif, write_openai_chat
from ratchet.loop.context import Run, Stage, stage
from ratchet.loop.playing import kept, played, told_of
from ratchet.policies.checkpoint import STARTER
from ratchet.progress import task as progress
from ratchet.rights import AuthorisedDataset, authorise
from ratchet.rollouts.judged import Judged, Request
from ratchet.rollouts.record import to_trajectory
from ratchet.rollouts.rollout import Rollout
from ratchet.rollouts.scripted import Script, play
from ratchet.splits import (
    ContaminationCertificate,
    Document,
    check,
    corpus_digest,
    document_of,
    lock,
    near_duplicates,
    open_certificate,
    open_waivers,
    save_certificate,
    save_lock,
    waived,
)


def task_catalogue(run: Run) -> Stage:
    """Make the tasks of the experiment by really running them, once."""

    def make() -> bytes:
        return "".join(canonical_json(task) + "\n" for task in run.environment.tasks()).encode()

    data, reused = run.once("tasks.jsonl", make)
    tasks = run.tasks()
    segments = Counter(task.segment for task in tasks)
    repos = len({task.repo for task in tasks})
    rows = [{"segment": name, "tasks": count} for name, count in sorted(segments.items())]
    summary = f"{len(tasks)} tasks from {repos} repos"
    return stage("task_catalogue", reused, summary, digest_bytes(data), rows, tasks=len(tasks), repos=repos)


def split_lock(run: Run) -> Stage:
    """Lock train, validation and held-out, once; verify the lock against the tasks every time."""
    name = run.name("splits", "lock.json")
    reused = run.store.exists(name)
    if not reused:
        made = lock(
            run.tasks(),
            run.manifest.splits,
            seed=run.manifest.seed,
            at=run.now(),
            manifest_digest=run.manifest.digest,
            aliases=run.environment.aliases(),
        )
        save_lock(run.store, made, name)
    held = run.lock
    sizes = {"train": len(held.train), "validation": len(held.validation), "heldout": len(held.heldout)}
    rows = [{"split": split, **counts} for split, counts in held.segments.items()]
    summary = f"{sizes['train']} / {sizes['validation']} / {sizes['heldout']} locked, {len(held.left_out)} left out"
    if held.supersedes:
        gone = ", ".join(one.task_id for one in held.withdrawn)
        summary += f"; version {held.version}, not comparable with those before: without {gone}"
    return stage("split_lock", reused, summary, held.digest, rows, root=held.root, **sizes)


def landing_logs(run: Run) -> Stage:
    """Let the scripted agents act on training tasks and write their logs to the tenant's landing folder, once."""
    module = importlib.import_module(f"ratchet.environments.{run.manifest.environment.name}.agents")
    rows = []
    reused = True
    for section in run.manifest.logs:
        path = landing(run, f"{section.agent}.{section.format}.jsonl")
        if not path.exists():
            reused = False
            if section.agent not in module.AGENTS:
                raise ManifestError(
                    "logs.agent",
                    seen=section.agent,
                    rule=f"it must be one of {sorted(module.AGENTS)}",
                    remedy="correct it",
                )
            made = _played(run, section, module.AGENTS[section.agent])
            write_atif(made, path) if section.format == "atif" else write_openai_chat(made, path)
            kept(run, section.agent).drop()
        rows.append(
            {
                "agent": section.agent,
                "format": section.format,
                "episodes": section.episodes,
                "bytes": path.stat().st_size,
                **told_of(run, section.agent),
            }
        )
    total = sum(section.episodes for section in run.manifest.logs)
    summary = f"{total} episodes of scripted agents in {len(rows)} files"
    invalid = sum(row.get("invalid", 0) for row in rows)
    summary += f", {invalid} invalid" if invalid else ""
    return stage("landing_logs", reused, summary, rows, rows, episodes=total, invalid=invalid)


def landing(run: Run, name: str) -> Path:
    """Path of a log of this run in the landing folder: the folders name tenant and grant."""
    manifest = run.manifest
    return run.home / "landing" / manifest.tenant / manifest.grants[0].grant_id / f"{manifest.run_id}.{name}"


def _played(run: Run, section: LogSection, script: Script) -> list[Trajectory]:
    """Episodes of one scripted agent on training tasks, scored."""
    manifest = run.manifest
    tasks = run.training_tasks()
    order = random.Random(f"{manifest.seed}/{section.agent}")
    rounds = -(-section.episodes // len(tasks))
    requests = [(task, seed) for seed in range(rounds) for task in order.sample(tasks, len(tasks))][: section.episodes]

    def act(some: Sequence[Request], pool: ThreadPoolExecutor) -> list[Rollout]:
        return list(pool.map(lambda request: play(run.environment, section.agent, script, *request), some))

    def record(judged: Judged) -> Trajectory:
        return to_trajectory(
            judged.rollout,
            run.environment.spec,
            judged.outcome.score,
            policy=section.agent,
            policy_digest=None,
            decoding=None,
            tenant=manifest.tenant,
            grant_id=manifest.grants[0].grant_id,
        )

    return played(run, section.agent, requests, act, record)


def teachers(run: Run) -> list[str]:
    """The agents whose logs the methods name; where none names any, since all of them act, those that made the logs."""
    named = {policy for section in run.manifest.methods for policy in section.data.policies}
    return sorted(named or {log.agent for log in run.manifest.logs})


def demonstrations(run: Run, policies: Sequence[str], *, accepted_only: bool, purpose: Purpose) -> AuthorisedDataset:
    """Authorise the logged trajectories of some agents on this run's training tasks for a purpose.

    Invalid ones say nothing about an agent, so that they are in no dataset, whatever is asked for.

    Raises:
        NothingToLearn: there is none.
        RightsError: the grant is missing, expired, withdrawn, too narrow or foreign.
    """
    frame = index(run.store, run.manifest.tenant)
    wanted = {task.task_id for task in run.training_tasks()}
    frame = frame[frame["policy"].isin(list(policies)) & frame["task_id"].isin(wanted)]
    frame = frame[frame["score_kind"] != "invalid"]
    if accepted_only:
        frame = frame[(frame["score_kind"] == "scored") & (frame["score"] >= 1.0)]
    if frame.empty:
        raise NothingToLearn(
            f"logs of {', '.join(policies) or 'no agent'}",
            seen="no accepted trajectory" if accepted_only else "no trajectory",
            rule="at least one of a training task must be there to learn from",
            remedy="name agents that the intake has logs of, or take more logs in",
        )
    return authorise(
        run.rights,
        zip(frame["digest"], frame["grant_id"], strict=True),
        purpose=purpose,
        tenant=run.manifest.tenant,
        base_model=run.manifest.base.checkpoint,
        at=run.now(),
        manifest_digest=run.manifest.digest,
    )


def starter_corpus() -> list[Document]:
    """What the starter checkpoint was trained on, as documents."""
    lines = gzip.decompress((STARTER.parent / "starter-corpus.jsonl.gz").read_bytes()).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        Document(
            name=row["name"],
            source="starter",
            text=row["text"],
            code=tuple(row["code"]),
            identifiers=(row["name"],),
            role="starter",
        )
        for row in rows
    ]


class Certified(NamedTuple):
    """A certificate with the waivers that hold, where it is in the store, and the corpus it is about."""

    certificate: ContaminationCertificate
    name: str
    corpus: str
    reused: bool


def certificate(run: Run, dataset: AuthorisedDataset) -> Certified:
    """Check everything that a training run would read against the locked tasks, once per corpus.

    What is read follows from the dataset's records and the base checkpoint, so a corpus that was checked is not built
    again. Stored waivers are taken up each time: a certificate with waivers is another one, under a name of its own. A
    failed certificate is returned too: its `require` refuses.
    """
    checked = digest([run.lock.digest, dataset.records, run.manifest.base.checkpoint])
    known = run.name("checked", f"{checked}.json")
    identity = json.loads(run.store.read(known))["corpus"] if run.store.exists(known) else ""
    name = _certificate_name(run, identity)
    reused = bool(identity) and run.store.exists(name)
    if not reused:
        corpus = [document_of(trajectory, "trajectories") for trajectory in trajectories(run.store, dataset)]
        corpus += starter_corpus() if run.manifest.base.checkpoint == "package:starter" else []
        identity = corpus_digest(corpus)
        name = _certificate_name(run, identity)
        reused = run.store.exists(name)
        if not reused:
            with progress(f"contamination: {len(corpus)} documents against the locked tasks"):
                save_certificate(run.store, check(run.lock, run.tasks(), corpus), name)
        run.store.create(known, canonical_json({"corpus": identity}).encode())
    stored = open_certificate(run.store, name)
    found = waived(stored, open_waivers(run.store, run.name("waivers")))
    if found is not stored:
        name = _certificate_name(run, f"{identity}.{found.digest[:16]}")
        save_certificate(run.store, found, name)
    return Certified(found, name, identity, reused)


def _certificate_name(run: Run, subject: str) -> str:
    """A superseded lock's certificates keep their names."""
    version = run.lock.version
    return run.name("certificates", f"{subject}.json" if version == 1 else f"{subject}.lock-{version}.json")


def contamination_report(run: Run) -> Stage:
    """Certify the demonstrations of all methods together against validation and held-out tasks."""
    policies = teachers(run)
    dataset = demonstrations(run, policies, accepted_only=False, purpose="train_sft")
    found, _, _, reused = certificate(run, dataset)
    persons = {waiver.finding_id: f"{waiver.by}: {waiver.reason}" for waiver in found.waivers}
    rows = [layer.model_dump(mode="json") for layer in found.layers]
    rows += [
        {
            "finding": one.finding_id,
            "layer": one.layer,
            "rule": one.rule,
            "task": one.task_id,
            "document": one.document,
            "task_text": one.task_text[:200],
            "text": one.document_text[:200],
            "waived": persons.get(one.finding_id, ""),
        }
        for one in found.findings[:20]
    ]
    repeats = repeated(run, dataset)
    summary = f"{found.open_findings} findings in {found.documents} documents against {found.protected} locked tasks"
    summary += f", {len(persons)} waived" if persons else ""
    summary += f"; {repeats['repeats']} of {repeats['documents']} demonstrations repeat an earlier one"
    return stage(
        "contamination_report",
        reused,
        summary,
        found.digest,
        rows,
        passed=str(found.passed),
        findings=found.open_findings,
        near_duplicates=repeats["repeats"],
    )


def repeated(run: Run, dataset: AuthorisedDataset) -> dict[str, int]:
    """Count the demonstrations, and how many of them are near-duplicates of an earlier one, once per dataset.

    It forbids nothing: what is learned from twice weighs twice, and a steward should know.
    """

    def make() -> dict[str, int]:
        with progress(f"near-duplicates among {len(dataset.records)} demonstrations"):
            texts = (document_of(one, "trajectories").text for one in trajectories(run.store, dataset))
            groups = near_duplicates(texts).groups()
        return {"documents": len(groups), "repeats": int((groups != range(len(groups))).sum())}

    counts: dict[str, int] = run.once_json(f"near_duplicates/{digest(dataset.records)}.json", make)[0]
    return counts
