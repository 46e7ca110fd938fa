"""A judge behind an OpenAI-compatible endpoint: structured output, temperature 0, bounded retries, cost counted.

Retried with exponential backoff (or as long as `Retry-After` asks, within the deadline): no connection, timeouts, 408,
409, 425, 429 and 5xx, and an answer that is not the JSON that was asked for. Every call that was answered is paid for,
a retried one too. Anything else, and the last failure, is an error, which the caller records as an invalid judgement.
The key comes from the environment and is in no digest, message or log.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.contracts.judge import Endpoint
from ratchet.contracts.score import NotComputable, Quantity, total
from ratchet.errors import RatchetError
from ratchet.rewards.judges.base import Judgement
from ratchet.rewards.judges.rubric import Item, Rubric, answer_schema, instructions, presentation

PROMPT_VERSION = "1"
RETRIED = {408, 409, 425, 429}
FIRST_WAIT_S = 0.5
MAX_WAIT_S = 30.0


class _Again(Exception):
    """A failure that another call may mend; `wait_s` is what the server asked for."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        self.reason, self.wait_s = reason, wait_s
        super().__init__(reason)


class _Usage:
    """Tokens and cost over the calls of one item."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.prompt = self.completion = self.calls = 0
        self._costs: list[Quantity] = []

    def add(self, usage: Any) -> None:
        known = usage if isinstance(usage, dict) else {}
        prompt, completion = known.get("prompt_tokens"), known.get("completion_tokens")
        per_input, per_output = self._endpoint.per_million_input_tokens, self._endpoint.per_million_output_tokens
        if not (isinstance(prompt, int) and isinstance(completion, int) and min(prompt, completion) >= 0):
            self._costs.append(NotComputable(reason="the endpoint does not state its usage"))
            return
        self.prompt += prompt
        self.completion += completion
        if per_input is None or per_output is None:
            self._costs.append(NotComputable(reason="the endpoint's prices are not stated"))
        else:
            self._costs.append((prompt * per_input + completion * per_output) / 1e6)

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "cost_usd": total(self._costs),
            "calls": self.calls,
        }


class EndpointJudge:
    """Implements `ratchet.rewards.judges.base.Judge`."""

    batch = 1

    def __init__(self, rubric: Rubric, endpoint: Endpoint) -> None:
        """Prepare the judge; nothing is called yet.

        Raises:
            RatchetError: the environment variable of the key is not set.
        """
        self.rubric, self.endpoint = rubric, endpoint
        self._local = threading.local()
        self._key: str | None = None
        if endpoint.api_key_env is not None:
            self._key = os.environ.get(endpoint.api_key_env)
            if not self._key:
                raise RatchetError(
                    f"judge {endpoint.model!r}",
                    seen=f"no {endpoint.api_key_env}",
                    rule="the key of the endpoint comes from that environment variable",
                    remedy="set it where the loop runs",
                )

    @cached_property
    def digest(self) -> str:
        """Identity: rubric, prompt, model, decoding. The address is none of it: a model may move."""
        decoding = {"temperature": 0, "max_tokens": self.endpoint.max_tokens}
        return digest([self.rubric, instructions(self.rubric), PROMPT_VERSION, self.endpoint.model, decoding])

    def judge(self, items: Sequence[Item]) -> list[Judgement]:
        """Grade items, one call each; one whose retries or deadline are used up is invalid, with what it cost.

        Raises:
            RatchetError: the endpoint refused the request itself.
        """
        return [self._judged(item) for item in items]

    def _judged(self, item: Item) -> Judgement:
        usage, wait_s, last = _Usage(self.endpoint), FIRST_WAIT_S, "no call was made"
        ends = time.monotonic() + self.endpoint.deadline_s
        for _ in range(self.endpoint.retries + 1):
            left = ends - time.monotonic()
            if left <= 0:
                break
            try:
                category, reason = self._call(item, usage, min(self.endpoint.timeout_s, left))
                return Judgement(category=category, reason=reason, **usage.fields)
            except _Again as error:
                last = error.reason
                pause = wait_s if error.wait_s is None else error.wait_s
                time.sleep(max(0.0, min(pause, MAX_WAIT_S, ends - time.monotonic())))
                wait_s *= 2
        return Judgement(invalid=f"{last}, after {usage.calls} calls", **usage.fields)

    def _call(self, item: Item, usage: _Usage, timeout_s: float) -> tuple[str, str]:
        import requests

        usage.calls += 1
        try:
            response = self._session().post(
                f"{self.endpoint.url.rstrip('/')}/chat/completions", json=self._body(item), timeout=timeout_s
            )
        except requests.Timeout:
            raise _Again(f"no answer within {timeout_s:.0f} s") from None
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError):
            raise _Again("the answer broke off") from None
        except requests.ConnectionError:
            raise _Again("no connection") from None
        if response.status_code in RETRIED or response.status_code >= 500:
            raise _Again(f"HTTP {response.status_code}", _asked(response.headers.get("Retry-After")))
        if response.status_code != 200:
            raise RatchetError(
                f"judge {self.endpoint.model!r}",
                seen=f"HTTP {response.status_code}: {response.text[:200]}",
                rule="the endpoint must accept the request",
                remedy="check address, model and key",
            )
        try:
            body = response.json()
            usage.add(body.get("usage"))
            choice = body["choices"][0]
            if choice.get("finish_reason") == "length":
                raise _Again(f"the answer was cut off at {self.endpoint.max_tokens} tokens")
            answer = json.loads(choice["message"]["content"])
            category, reason = answer["category"], answer["reason"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise _Again("the answer is not the JSON that was asked for") from None
        if category not in self.rubric.categories or not isinstance(reason, str):
            raise _Again("the answer is outside the rubric")
        return category, reason

    def _body(self, item: Item) -> dict[str, Any]:
        schema = {"name": "judgement", "strict": True, "schema": answer_schema(self.rubric)}
        return {
            "model": self.endpoint.model,
            "messages": [
                {"role": "system", "content": instructions(self.rubric)},
                {"role": "user", "content": presentation(item)},
            ],
            "temperature": 0,
            "max_tokens": self.endpoint.max_tokens,
            "response_format": {"type": "json_schema", "json_schema": schema},
        }

    def _session(self) -> Any:
        """One connection pool per thread: a session of requests is not made for several."""
        import requests

        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
            if self._key:
                self._local.session.headers["Authorization"] = f"Bearer {self._key}"
        return self._local.session


def _asked(value: str | None) -> float | None:
    """Seconds of a Retry-After header; a date or nonsense asks for nothing."""
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None
