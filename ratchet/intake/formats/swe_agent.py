"""SWE-agent `.traj` files of every generation, and what is made of them.

1. 0.x: `environment`, `trajectory`, `history`, `info`; actions are text, `state` is a JSON string.
2. 1.0: `state` is an object, steps have `execution_time`, `replay_config` says how it was run.
3. 1.0 with tool calls: `history` holds `tool_calls` and `tool_call_ids`, every step of `trajectory` repeats the whole
   input of the model as `messages`, later `query`. The retry agent writes `attempts`: one trajectory each.
4. Demonstrations: `history` alone. Also rows that data sets made of 0.x runs: `trajectory` of `{role, text}`.

`history` is the conversation that the model had, and is what is read; `trajectory` says what else is known of each of
its steps, and holds the tries that the model was asked to repeat, which never entered the conversation: both are kept
beside the step. Demonstrations inside a history (`is_demo`) are copied context. An action in plain text stays the text
that the model wrote, and its observation the message that the model read: a call made of them would train a turn that
never was. The last observation, which no message repeats in 0.x, is the result of the last step. Demonstrations in YAML
are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.intake.jsontext import Value, decode_sound
from ratchet.intake.messages import Conversation, object_of, records_of, text_or_none, thinking_of
from ratchet.intake.records import Record, Rejected, Unreadable
from ratchet.intake.sniff import inside, roots
from ratchet.intake.tasks import instance_claims, named_claims, submission_claims, url_claims

TITLE = "SWE-agent `.traj`"
LINES = False
"""A document that holds several runs says more than the bytes of each of them."""
KEPT = (
    "`history` as the conversation, demonstrations as copied context; of `trajectory` what `history` lacks (state, "
    "times, repeated tries, the last observation); every attempt of a retry run; `info`, `replay_config` and the rest "
    "under `extra.swe_agent`; the submission as the deliverable `submission.diff`; task and repo from the instance id"
)
DROPPED = "`query` and `messages` of each step of `trajectory`, which repeat the history as the model was shown it"

_FOREIGN = {"trajectory_format", "messages", "test_result", "metadata", "conversations", "steps"}
_STEP = {"response", "thought", "state", "query"}
_ROLES = {"ai": "assistant"}
_RETRY = "attempt"


def sniff(head: bytes, name: str) -> bool:
    """Whether a record has steps, attempts or a history as SWE-agent writes them."""
    return any(_own(keys, head) for keys in roots(head))


def _own(keys: dict[str, str], head: bytes) -> bool:
    if _FOREIGN & set(keys):
        return False
    if keys.get("attempts", "").startswith("["):
        return bool({"trajectory", "history"} & set(inside(head, "attempts")))
    if keys.get("trajectory", "").startswith("["):
        step = set(inside(head, "trajectory"))
        if step:
            return ("action" in step and bool(_STEP & step)) or ({"role", "text"} <= step)
    if keys.get("history", "").startswith("["):
        message = set(inside(head, "history"))
        return "role" in message and bool({"agent", "message_type"} & message or {"info", "environment"} & set(keys))
    return False


def read(data: bytes, source: str) -> Iterator[Record | Rejected]:
    """Yield one record per run, or per attempt of a run that was tried again."""
    return records_of(data, lambda item: _record(item, source), _attempts)


def _attempts(item: Value) -> Iterator[Value]:
    """Yield the attempts of a retry run, each with what the run says of it; anything else is one trajectory."""
    body = item.value
    attempts = _list(body, "attempts")
    if not attempts:
        yield item
        return
    if not all(isinstance(attempt, dict) for attempt in attempts):
        raise Unreadable("bad_attempt", "attempts must hold objects")
    info = object_of(body, "info")
    best = info.get("best_attempt_idx")
    for index, attempt in enumerate(attempts):
        about: dict[str, Any] = {"index": index, "of": len(attempts)}
        if best is not None:
            about["chosen"] = index == best
        if index == best:
            own = object_of(attempt, "info")
            about["run"] = {key: value for key, value in info.items() if key not in own or own[key] != value}
            if "history" in body and body["history"] != attempt.get("history"):
                raise Unreadable("bad_attempt", "the chosen attempt must be the one that the run repeats")
        yield replace(item, value={**attempt, _RETRY: about}, raw=canonical_json(attempt).encode(), text=None)


def _record(item: Value, source: str) -> Record:
    body = item.value
    info = object_of(body, "info")
    trajectory = _list(body, "trajectory")
    history = _list(body, "history")
    if not history:
        history, trajectory = _history_of(trajectory)
    if not history:
        raise Unreadable("no_messages", "history or trajectory must hold at least one message")
    chat = Conversation(lambda: digest(body)[:12], "swe_agent", item.anomalies)
    steps = _Steps(trajectory)
    for message in history:
        _say(chat, message, steps)
    steps.finish(chat, history[-1])
    config = _config(body)
    submitted, left = submission_claims(info.get("exit_status", body.get("exit_status")), info, "submission")
    if "generated_patch" in body:
        submitted, _ = submission_claims(body.get("exit_status"), body, "generated_patch")
    rest = {key: value for key, value in body.items() if key not in ("history", "trajectory", "info", "replay_config")}
    if left:
        rest["info"] = left
    if body.get("replay_config") is not None:
        rest["replay_config"] = body["replay_config"] if config is None else config
    if steps.unmatched:
        rest["steps_outside_history"] = steps.unmatched
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": {
            "name": "SWE-agent",
            "version": text_or_none(info.get("swe_agent_version")) or "unknown",
            "model_name": _model(body, config or {}),
        },
        "steps": chat.steps,
        "final_metrics": _totals(info.get("model_stats")),
        "extra": {"swe_agent": rest} if rest else None,
    }
    claims = {**_task(body, config or {}, source), **submitted}
    anomalies = (*chat.anomalies(), *steps.anomalies)
    return Record(item.number, item.offset, item.raw, document, claims, anomalies, tuple(steps.dropped))


def _say(chat: Conversation, message: Any, steps: _Steps) -> None:
    """Take one message of the history."""
    if not isinstance(message, dict):
        raise Unreadable("bad_message", "a message must be an object")
    role = message.get("role")
    content = message.get("content")
    # In the tool-calling generation the thought is the content once more.
    plain = {key: value for key, value in message.items() if key != "thought" or value != content}
    if isinstance(role, str) and role in _ROLES:
        plain["role"] = _ROLES[role]
    said = chat.add(plain)
    if message.get("is_demo") and "step_id" in said:
        said["is_copied_context"] = True
    if plain.get("role") == "assistant":
        thinking = thinking_of(message.get("thinking_blocks"))
        if thinking and "reasoning_content" not in said:
            said["reasoning_content"] = thinking
        if not message.get("is_demo"):
            steps.match(said, message)
    else:
        steps.answered(message)


class _Steps:
    """The steps of `trajectory`, matched in order to what the model said in `history`."""

    def __init__(self, steps: list[Any]) -> None:
        if not all(isinstance(step, dict) for step in steps):
            raise Unreadable("bad_step", "trajectory must hold objects")
        self._steps = steps
        self._next = 0
        self._open: tuple[dict[str, Any], dict[str, Any]] | None = None
        self.unmatched: list[dict[str, Any]] = []
        self.anomalies: list[str] = []
        self.dropped = [f"trajectory.{key}" for step in steps for key in ("query", "messages") if step.get(key)]

    def match(self, said: dict[str, Any], message: dict[str, Any]) -> None:
        """Find the step in which the message was said, and keep with it what the history does not tell."""
        self._settle("")
        for position in range(self._next, len(self._steps)):
            step = self._steps[position]
            action = message.get("action")
            if step.get("response") == message.get("content") and action in (None, step.get("action")):
                passed = [self._about(other) for other in self._steps[self._next : position]]
                self._next = position + 1
                about = {**self._about(step, message), **({"repeated_tries": passed} if passed else {})}
                self.anomalies += ["step_outside_history"] * len(passed)
                own = said.setdefault("extra", {}).setdefault("swe_agent", {})
                own.update({key: value for key, value in about.items() if key not in own})
                self._open = own, said
                return

    def answered(self, message: dict[str, Any]) -> None:
        """Note that a message follows: the observation is kept beside it only where the message does not repeat it."""
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        self._settle("\n".join(str(part.get("text")) for part in parts if isinstance(part, dict)))

    def _settle(self, read: str) -> None:
        if self._open:
            own, _ = self._open
            if isinstance(own.get("observation"), str) and own["observation"].strip() in read:
                del own["observation"]
            self._open = None

    def finish(self, chat: Conversation, last: dict[str, Any]) -> None:
        """Make the last observation a result where no message follows; keep the steps that the history lacks."""
        if self._open:
            own, said = self._open
            seen = own.pop("observation", None)
            if isinstance(seen, str) and seen:
                calls = said.get("tool_calls")
                if calls:
                    first = calls[0]
                    chat.result(
                        (first.get("extra") or {}).get("original_call_id", first["tool_call_id"]), None, seen, {}
                    )
                else:
                    said["observation"] = {"results": [{"source_call_id": None, "content": seen}]}
        self.unmatched = [self._about(step) for step in self._steps[self._next :]]
        self.anomalies += ["step_outside_history"] * len(self.unmatched)

    def _about(self, step: dict[str, Any], message: dict[str, Any] | None = None) -> dict[str, Any]:
        """What a step says beyond the message that it is about: all but the repeated input."""
        told = ("query", "messages", *(("response",) if message is not None else ()))
        same = message or {}
        return {
            key: value
            for key, value in step.items()
            if key not in told
            and not (key in same and same[key] == value)
            and not (same and value == same.get("content"))
        }


def _history_of(trajectory: list[Any]) -> tuple[list[Any], list[Any]]:
    """Rebuild a conversation that was not kept: (messages, steps that still tell more)."""
    if not trajectory or not isinstance(trajectory[0], dict):
        return [], trajectory
    if "role" in trajectory[0]:
        return [_plain_message(item) for item in trajectory], []
    opening = trajectory[0].get("query") or trajectory[0].get("messages") or []
    if not isinstance(opening, list):
        raise Unreadable("bad_message", "the input of a step must be an array of messages")
    history = list(opening)
    # Early files list the answer of the step among its messages.
    if history and isinstance(history[-1], dict) and history[-1].get("role") in ("tool", "assistant"):
        ends = [n for n, item in enumerate(history) if isinstance(item, dict) and item.get("role") == "assistant"]
        history = history[: ends[-1]] if ends else history
    for number, step in enumerate(trajectory):
        if not isinstance(step, dict):
            raise Unreadable("bad_step", "trajectory must hold objects")
        history.append({"role": "assistant", "content": step.get("response"), "action": step.get("action")})
        if number + 1 < len(trajectory):
            history.append({"role": "user", "content": step.get("observation")})
    return history, trajectory


def _plain_message(item: Any) -> Any:
    """Turn `{role, text, system_prompt}` of a data set's row into a message."""
    if not isinstance(item, dict) or "content" in item:
        return item
    content = item.get("text") if item.get("text") is not None else item.get("system_prompt")
    told = {"text", "system_prompt"} if content in (item.get("text"), item.get("system_prompt")) else set()
    rest = {key: value for key, value in item.items() if key not in told or (value is not None and value != content)}
    return {**rest, "content": content}


def _config(body: dict[str, Any]) -> dict[str, Any] | None:
    given = body.get("replay_config")
    config = decode_sound(given) if isinstance(given, str) else given
    return config if isinstance(config, dict) else None


def _model(body: dict[str, Any], config: dict[str, Any]) -> str | None:
    """Return the name of the model: of the attempt's own agent, where several were configured."""
    agent = config.get("agent")
    agent = agent if isinstance(agent, dict) else {}
    several = agent.get("agent_configs")
    if isinstance(several, list) and several:
        about = body.get(_RETRY)
        agent = several[(about["index"] if isinstance(about, dict) else 0) % len(several)]
    model = agent.get("model") if isinstance(agent, dict) else None
    return text_or_none(model.get("name") if isinstance(model, dict) else body.get("model_name"))


def _task(body: dict[str, Any], config: dict[str, Any], source: str) -> dict[str, Any]:
    """Return task, repo and issue: by what the run says, else by the file's name."""
    problem = config.get("problem_statement")
    problem = problem if isinstance(problem, dict) else {}
    stated, url = body.get("instance_id") or problem.get("id"), problem.get("github_url")
    claims = instance_claims(stated) if isinstance(stated, str) and stated else named_claims(source)
    return {**claims, **(url_claims(url) if isinstance(url, str) else {})}


def _totals(stats: Any) -> dict[str, Any] | None:
    if not isinstance(stats, dict):
        return None
    counts = {"total_prompt_tokens": stats.get("tokens_sent"), "total_completion_tokens": stats.get("tokens_received")}
    found: dict[str, Any] = {key: value for key, value in counts.items() if type(value) is int}
    if type(stats.get("instance_cost")) in (int, float):
        found["total_cost_usd"] = stats["instance_cost"]
    return found or None


def _list(body: dict[str, Any], field: str) -> list[Any]:
    value = body.get(field)
    if value is not None and not isinstance(value, list):
        raise Unreadable("bad_message", f"{field} must be an array")
    return value or []
