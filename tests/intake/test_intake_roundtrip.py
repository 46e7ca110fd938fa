"""What is written as a log and read back is the same, but for what the format is documented to lose."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from intake_world import chat, document, world

from ratchet.contracts.trajectory import (
    Agent,
    CallRecord,
    ContentPart,
    MediaSource,
    Observation,
    ObservationResult,
    RatchetExtra,
    Step,
    StepMetrics,
    Trajectory,
)
from ratchet.intake.formats import atif, openai_chat, recognise
from ratchet.intake.records import Record
from ratchet.intake.validate import trajectory_of
from ratchet.intake.write import write_atif, write_openai_chat

text = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
parts = st.one_of(
    st.builds(lambda t: ContentPart(type="text", text=t), text),
    st.just(ContentPart(type="image", source=MediaSource(media_type="image/png", path="data:image/png;base64,AA=="))),
    st.just(ContentPart(type="audio", source=MediaSource(media_type="audio/wav", path="data:audio/wav;base64,AA=="))),
)
contents = text | st.lists(parts, max_size=2)
extras = st.none() | st.dictionaries(text.filter(lambda key: key != "ratchet"), json_values, max_size=2)


@st.composite
def logs(draw):
    steps = []
    for step_id in range(1, draw(st.integers(1, 5)) + 1):
        fields = {"message": draw(contents), "source": draw(st.sampled_from(["system", "user", "agent"]))}
        if fields["source"] == "agent":
            calls = [
                CallRecord(tool_call_id=f"c{step_id}.{n}", function_name="f", arguments=arguments, extra=draw(extras))
                for n, arguments in enumerate(
                    draw(st.lists(st.dictionaries(text, json_values, max_size=2), max_size=3))
                )
            ]
            answered = draw(st.permutations(calls))[: draw(st.integers(0, len(calls)))]
            results = [
                ObservationResult(source_call_id=call.tool_call_id, content=draw(st.none() | contents))
                for call in answered
            ]
            fields |= {
                "tool_calls": calls or None,
                "observation": Observation(results=results) if results else None,
                "reasoning_content": draw(st.none() | text),
                "metrics": draw(st.none() | st.just(StepMetrics(completion_token_ids=[1], logprobs=[-0.5]))),
            }
        steps.append(Step(step_id=step_id, extra=draw(extras), **fields))
    ratchet = RatchetExtra(
        tenant="acme", grant_id="g", task_id=draw(st.none() | text), seed=draw(st.none() | st.integers(-(2**63), 2**63))
    )
    agent = Agent(name=draw(text), version="1", model_name=draw(st.none() | text))
    return Trajectory(agent=agent, steps=steps, extra=draw(extras)).with_ratchet(ratchet)


def back(path, reader):
    assert recognise(path.read_bytes(), path.name) == [reader.__name__.rsplit(".", 1)[-1]]
    found = list(reader.read(path.read_bytes(), path.name))
    assert all(isinstance(item, Record) for item in found)
    return [trajectory_of(item, tenant="acme", grant_id="g") for item in found]


relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@relaxed
@given(st.lists(logs(), min_size=1, max_size=3))
def test_atif_keeps_everything(tmp_path, written):
    (lines,) = write_atif(written, tmp_path / "x.jsonl")
    assert [item.digest for item in back(lines, atif)] == [item.digest for item in written]
    for item, path in zip(written, write_atif(written, tmp_path / "documents"), strict=True):
        assert [read.digest for read in back(path, atif)] == [item.digest]


@relaxed
@given(st.lists(logs(), min_size=1, max_size=3))
def test_openai_chat_keeps_what_was_said_called_and_answered(tmp_path, written):
    found = back(write_openai_chat(written, tmp_path / "x.jsonl"), openai_chat)
    assert [gist(item) for item in found] == [gist(item) for item in written]


def gist(log):
    """What the documentation says OpenAI chat keeps."""
    ratchet = log.ratchet.model_copy(update={"anomalies": []})
    steps = [
        (
            step.source,
            step.message,
            step.reasoning_content,
            [(call.tool_call_id, call.function_name, call.arguments) for call in step.tool_calls or ()],
            [(item.source_call_id, item.content) for item in (step.observation.results if step.observation else ())],
        )
        for step in log.steps
    ]
    return log.agent.model_name, log.agent.name or "unknown", ratchet, steps


CORPUS = [
    json.dumps(document()).encode(),
    b"\n".join(json.dumps(document(number)).encode() for number in range(2)),
    json.dumps([chat(model="m"), chat({"role": "tool", "content": "x"})], indent=1).encode(),
    json.dumps(
        chat(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "ok"}]},
            tools="[]",
        )
    ).encode(),
]
SPLICES = [
    b"null",
    b"{}",
    b"[]",
    b'""',
    b"NaN",
    b"1e999",
    b"-1",
    b"\\ud800",
    b"\xff",
    b"\n",
    b'"a":1,',
    b"}" * 3,
    b"[" * 200,
]


def mutated(chance):
    data = bytearray(chance.choice(CORPUS).replace(b"fix bug", b"fix %d bug" % chance.getrandbits(40)))
    for _ in range(chance.choice([1, 1, 1, 3])):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            data[at : at + chance.randint(1, 30)] = b""
        elif kind == 2:
            data[at : at + chance.choice([0, 1, 4])] = chance.choice(SPLICES)
        else:
            del data[at:]
    return bytes(data)


@pytest.mark.parametrize("files", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_mutated_logs_are_stored_or_set_aside_and_nothing_in_between(tmp_path, files):
    chance = random.Random(files)
    home = world(tmp_path)
    for number in range(files):
        home.land(f"{number}.json", mutated(chance))
    report = home.ingest()
    assert report.read == report.stored + report.duplicates + report.quarantined
    assert "reader_failed" not in report.reasons
    assert report.stored > files // 20
    assert report.quarantined > files // 4
    again = home.ingest()
    assert (again.batch, again.read, again.quarantined) == (None, report.read, report.quarantined)
