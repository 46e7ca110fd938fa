"""Findings of the contamination check as a person sees them, and a person's waiver of one of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ratchet.errors import ContaminationError
from ratchet.loop.context import Run, reopen_run, runs
from ratchet.splits import ContaminationCertificate, Finding, Waiver, open_certificate, open_waivers, save_waiver, waive


class Found(NamedTuple):
    """A finding in an experiment, a certificate that has it, and its waiver, if any."""

    run_id: str
    certificate: ContaminationCertificate
    finding: Finding
    waiver: Waiver | None


def findings(home: Path, run_id: str | None = None) -> list[Found]:
    """Every finding that the certificates of an experiment, or of all of a home, keep; each once per experiment."""
    listed: list[Found] = []
    for name in [run_id] if run_id else runs(home):
        with reopen_run(home, name) as run:
            waivers = {one.finding_id: one for one in open_waivers(run.store, run.name("waivers"))}
            seen: dict[str, Found] = {}
            for certificate in certificates(run):
                for one in certificate.findings:
                    seen.setdefault(one.finding_id, Found(name, certificate, one, waivers.get(one.finding_id)))
            listed += seen.values()
    return listed


def certificates(run: Run) -> list[ContaminationCertificate]:
    """The certificates of an experiment, verified."""
    return [open_certificate(run.store, name) for name in run.store.names(run.name("certificates"))]


def waive_finding(
    home: Path, finding_id: str, *, by: str, reason: str, at: datetime, run_id: str | None = None
) -> Found:
    """Record a person's decision that a finding is no leak; the experiment's next stage takes it up.

    Args:
        home: the home folder.
        finding_id: start of the finding's id.
        by: who decides.
        reason: why it is no leak.
        at: the time, with zone.
        run_id: the experiment, where several have the finding.

    Raises:
        ContaminationError: no or several findings are meant, it is waived already, or nobody or no reason is named.
    """
    meant = [one for one in findings(home, run_id) if one.finding.finding_id.startswith(finding_id)]
    if len(meant) != 1 or not finding_id:
        places = ", ".join(f"{one.finding.finding_id} in {one.run_id}" for one in meant[:5]) or "none"
        raise ContaminationError(
            f"finding {finding_id!r}",
            rule=f"it must name one finding of one experiment, and names {places}",
            remedy="see `ratchet contamination show`; give more of the id, or --experiment",
        )
    (found,) = meant
    if not found.waiver and found.finding.finding_id not in {one.finding_id for one in found.certificate.waivers}:
        # The rules of a waiver are those of the certificate that it will be part of.
        waive(found.certificate, found.finding.finding_id, by=by, reason=reason, at=at)
    waiver = Waiver(finding_id=found.finding.finding_id, by=by, reason=reason, at=at)
    with reopen_run(home, found.run_id) as run:
        save_waiver(run.store, waiver, run.name("waivers"))
    return found._replace(waiver=waiver)
