"""Intake: logs of any registered format into the canonical trajectory store, and the ways to read it."""

from ratchet.intake.ingest import ingest
from ratchet.intake.read import index, original, quarantined, records, trajectories
from ratchet.intake.report import IntakeReport
from ratchet.intake.write import write_atif, write_openai_chat

__all__ = [
    "IntakeReport",
    "index",
    "ingest",
    "original",
    "quarantined",
    "records",
    "trajectories",
    "write_atif",
    "write_openai_chat",
]
