"""Trajectories, steps, calls, results and anomalies that the readers give, beside counts that are made without them.

Every count here goes through Python's own JSON decoder and knows the formats' shapes only: which messages speak, which
answer, and which ids a run uses.
"""

import json
from collections import Counter

import pytest
from log_samples import SAMPLES, plain

from ratchet.intake.formats import named as reader
from ratchet.intake.formats import recognise
from ratchet.intake.records import Rejected
from ratchet.intake.validate import trajectory_of

ANSWERS = ("tool", "function")
ANSWERED = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")


def of_messages(messages, *, skipped=()):
    """Counts of one OpenAI-like conversation; `skipped` roles are no turns."""
    spoken = [m for m in messages if m.get("role") not in (*ANSWERS, *skipped)]
    answers = [m for m in messages if m.get("role") in ANSWERS]
    calls = [call for m in spoken for call in m.get("tool_calls") or []]
    ids = [call.get("id") for call in calls if call.get("id")]
    return Counter(
        trajectories=1,
        steps=len(spoken),
        copied=sum(bool(m.get("is_demo")) for m in spoken),
        calls=len(calls),
        results=len(answers),
        duplicate_call_id=len(ids) - len(set(ids)),
        missing_call_id=len(calls) - len(ids),
        ends_on_result=int(messages[-1].get("role") in ANSWERS),
        call_ids_as_list=sum(bool(m.get("tool_call_ids")) for m in answers),
    )


def of_swe_agent(body):
    found = Counter()
    for run in body.get("attempts") or [body]:
        steps = run.get("trajectory") or []
        if "history" not in run:
            found += Counter(trajectories=1, steps=len(steps))
            continue
        history = run["history"]
        found += of_messages(history)
        said = [(m["content"], m.get("action")) for m in history if m["role"] == "assistant"]
        told = [(step["response"], step["action"]) for step in steps]
        found["step_outside_history"] += len(told) - sum((Counter(told) & Counter(said)).values())
        found["results"] += int(bool(steps) and history[-1]["role"] == "assistant" and bool(steps[-1]["observation"]))
    return found


def of_mini_swe_agent(body):
    messages = []
    for m in body["messages"]:
        if m.get("object") == "response":
            calls = [{"id": item["call_id"]} for item in m["output"] if item["type"] == "function_call"]
            messages.append({"role": "assistant", "tool_calls": calls})
        elif m.get("role") != "exit":
            messages.append({**m, "role": "tool" if m.get("type") == "function_call_output" else m["role"]})
    return of_messages(messages)


def of_tau(body):
    return of_messages(body["traj"]) if body["traj"] else Counter()


def of_tau2(body):
    found = Counter()
    for run in body.get("simulations", [body]):
        flat = [one for m in run["messages"] or [] for one in m.get("tool_messages", [m])]
        seen = [m for m in flat if m.get("requestor") != "user" and not (m["role"] == "user" and not m.get("content"))]
        if seen:
            of_agent = [{**m, "tool_calls": None} if m["role"] == "user" else m for m in seen]
            found += of_messages(of_agent)
    return found


def of_actions(events):
    """One stream of the first generation, or of pairs."""
    quiet = {"recall", "null", "agent_state_changed", "condensation"}
    flat = [event for item in events for event in (item if isinstance(item, list) else [item]) if event]
    flat = [event for event in flat if (event.get("action") or event.get("observation")) not in quiet]
    found = Counter(trajectories=1)
    responses = {}
    causes = set()
    for event in flat:
        meta = event.get("tool_call_metadata")
        if "action" not in event:
            continue
        if event["action"] in ("system", "message") or event["source"] == "user":
            found["steps"] += 1
        elif meta:
            response = meta["model_response"]
            calls = responses.setdefault(
                response["id"], [c["id"] for c in response["choices"][0]["message"]["tool_calls"]]
            )
            calls += [] if meta["tool_call_id"] in calls else [meta["tool_call_id"]]
        else:
            found.update(steps=1, calls=1, event_id_as_call_id=1)
            causes.add(event["id"])
    ids = [call for calls in responses.values() for call in calls]
    found.update(steps=len(responses), calls=len(ids), duplicate_call_id=len(ids) - len(set(ids)))
    pairs = [item for item in events if isinstance(item, list)]
    paired = sum(1 for item in pairs if item[0].get("id") in causes and item[1])
    heard = [event for event in flat if "observation" in event]
    answers = sum(1 for event in heard if event.get("tool_call_metadata") or event.get("cause") in causes)
    found.update(results=answers + paired, steps=len(heard) - answers - paired)
    return found


def of_events(events):
    """One stream of the SDK's events."""
    kinds = Counter(event["kind"] for event in events)
    acts = [event for event in events if event["kind"] == "ActionEvent"]
    reports = {event["tool_call_id"]: event for event in events if event["kind"] == "ACPToolCallEvent"}
    ids = [*reports, *(event["tool_call_id"] for event in acts)]
    answers = sum(kinds[kind] for kind in ANSWERED)
    told = [event for event in events if event["kind"] in (*ANSWERED, "MessageEvent", "ActionEvent")]
    spoken = sum(kinds[kind] for kind in ("SystemPromptEvent", "MessageEvent", "CondensationSummaryEvent"))
    return Counter(
        trajectories=1,
        steps=spoken + len({event["llm_response_id"] for event in acts}) + len(reports),
        calls=len(ids),
        results=answers + sum(report["raw_output"] is not None for report in reports.values()),
        duplicate_call_id=len(ids) - len(set(ids)),
        ends_on_result=int(told[-1]["kind"] in ANSWERED),
    )


def of_openhands(body):
    events = body.get("history", body.get("trajectory"))
    if not events:
        return Counter()
    if "role" in events[0]:
        return of_messages(events)
    return of_events(events) if isinstance(events[0], dict) and "kind" in events[0] else of_actions(events)


COUNTS = {
    "swe_agent": of_swe_agent,
    "mini_swe_agent": of_mini_swe_agent,
    "openhands": of_openhands,
    "tau_bench": of_tau,
    "tau2_bench": of_tau2,
    "openai_chat": lambda body: of_messages(body["messages"]),
}
CODES = (
    "duplicate_call_id", "missing_call_id", "ends_on_result", "call_ids_as_list", "step_outside_history",
    "event_id_as_call_id",
)  # fmt: skip


def counted(format, value):
    """Counts of a whole source without the readers."""
    bodies = value if isinstance(value, list) else [value]
    if format == "openhands" and ("action" in bodies[0] or "kind" in bodies[0]):
        bodies = [{"trajectory": bodies}]
    found = sum((COUNTS[format](body) for body in bodies), Counter())
    return {name: found[name] for name in ("trajectories", "steps", "copied", "calls", "results", *CODES)}


def read(format, data, name):
    """The same counts of what the reader gives."""
    found = Counter()
    for item in reader(format).read(data, name):
        if isinstance(item, Rejected):
            continue
        steps = trajectory_of(item, tenant="acme", grant_id="g").steps
        found.update(item.anomalies)
        found.update(
            trajectories=1,
            steps=len(steps),
            copied=sum(bool(step.is_copied_context) for step in steps),
            calls=sum(len(step.tool_calls or ()) for step in steps),
            results=sum(len(step.observation.results) for step in steps if step.observation),
        )
    return {name: found[name] for name in ("trajectories", "steps", "copied", "calls", "results", *CODES)}


FILES = [
    *((format, path.name) for format in COUNTS if format != "openai_chat" for path in (SAMPLES / format).iterdir()),
    ("openai_chat", "instance_rows.jsonl"),
]


@pytest.mark.parametrize(("format", "name"), sorted(FILES))
def test_a_reader_gives_what_is_in_the_file(format, name):
    data = (SAMPLES / format / name).read_bytes()
    assert recognise(data, name) == [format]
    assert read(format, data, name) == counted(format, plain(format, name))


@pytest.mark.parametrize("format", ["swe_agent", "tau_bench"])
def test_every_call_that_was_answered_has_its_own_answer(format):
    """Where every answer is different, no two calls may share one and none may be lost."""
    turns = []
    for number in range(40):
        call = {"id": "same", "type": "function", "function": {"name": "run", "arguments": json.dumps({"n": number})}}
        turns += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        turns += [{"role": "tool", "content": str(number), "tool_call_id": "same"}]
    first = [{"role": "user", "content": "x", "agent": "main"}]
    body = (
        {"history": first + turns}
        if format == "swe_agent"
        else {"task_id": 1, "reward": 0, "info": {}, "traj": first + turns}
    )
    (record,) = reader(format).read(json.dumps(body).encode(), "x.json")
    steps = trajectory_of(record, tenant="acme", grant_id="g").steps[1:]
    assert Counter(record.anomalies) == {"duplicate_call_id": 39, "ends_on_result": 1}
    for number, step in enumerate(steps):
        (call,), (result,) = step.tool_calls, step.observation.results
        assert (call.arguments["n"], result.content, result.source_call_id) == (number, str(number), call.tool_call_id)
