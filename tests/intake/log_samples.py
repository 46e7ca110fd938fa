"""The logs of agents as samples: what a reader gives, what Python alone sees in them, and who answers whom."""

import json
from collections import Counter
from pathlib import Path

from ratchet.intake.formats import named, recognise
from ratchet.intake.records import Rejected
from ratchet.intake.validate import trajectory_of

SAMPLES = Path(__file__).parent / "samples"


def raw(format, name):
    return (SAMPLES / format / name).read_bytes()


def plain(format, name):
    """The sample as Python's own decoder has it: one value, or a list of lines."""
    text = raw(format, name).decode()
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in text.split("\n") if line]
    return json.loads(text)


def items(format, name, data=None):
    return list(named(format).read(raw(format, name) if data is None else data, name))


def logs(format, name, data=None):
    """Every readable record as (record, trajectory), in order."""
    found = [item for item in items(format, name, data) if not isinstance(item, Rejected)]
    return [(item, trajectory_of(item, tenant="acme", grant_id="g")) for item in found]


def log(format, name, data=None):
    ((record, trajectory),) = logs(format, name, data)
    return record, trajectory


def rejected(format, data):
    """Codes of what a source is rejected for."""
    found = named(format).read(data if isinstance(data, bytes) else json.dumps(data).encode(), "x.json")
    return [item.code for item in found if isinstance(item, Rejected)]


def noted(record):
    return Counter(record.anomalies)


def calls(trajectory):
    """(name, arguments, text of the call's own answer or None) of every call, in order."""
    answers = {
        result.source_call_id: result.content
        for step in trajectory.steps
        for result in (step.observation.results if step.observation else ())
        if result.source_call_id is not None
    }
    made = [call for step in trajectory.steps for call in step.tool_calls or ()]
    return [(call.function_name, call.arguments, answers.get(call.tool_call_id)) for call in made]


def recognised(format, name, data=None):
    return recognise(raw(format, name) if data is None else data, name)
