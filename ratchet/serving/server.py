"""The HTTP service of one line: OpenAI-compatible chat completions, whole live tasks, and what stands where.

Every answer states the version that made it: `model` is its id, `system_fingerprint` the digest of its policy. With a
token set, every request but `/health` carries it (`Authorization: Bearer ...`).
"""

from __future__ import annotations

import hmac
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from ratchet.contracts.environment import Message, Task
from ratchet.progress import say
from ratchet.serving.desk import Desk
from ratchet.serving.outcomes import Spool
from ratchet.serving.served import Answer, Served
from ratchet.serving.tasks import LiveTasks, NothingServes


class TextPart(BaseModel):
    """One part of a message's content."""

    type: Literal["text"] = Field(description="Only text is read.")
    text: str = Field(description="The text.")


class ChatMessage(BaseModel):
    """One message, as OpenAI's clients send it."""

    role: Literal["system", "user", "assistant", "tool"] = Field(description="Who speaks.")
    content: str | list[TextPart] = Field(description="What was said.")

    def message(self) -> Message:
        """The message as the policy reads it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return Message(role=self.role, content=text)


class ChatRequest(BaseModel):
    """A chat completion. What a client sends beyond these fields is ignored."""

    model: str = Field(description="A slot (`production`, `canary`, `previous-production`) or the id of a version.")
    messages: list[ChatMessage] = Field(min_length=1, description="The conversation.")
    temperature: float | None = Field(default=None, ge=0, le=2, description="The harness's where it is left out.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="The harness's where it is left out.")
    max_tokens: int | None = Field(default=None, ge=1, description="Never more than the harness allows a turn.")
    max_completion_tokens: int | None = Field(default=None, ge=1, description="The newer name of the same.")
    n: int = Field(default=1, ge=1, le=64, description="Samples.")
    seed: int | None = Field(default=None, description="The same seed draws the same from the same version.")
    logprobs: bool = Field(default=False, description="Whether each token comes with its log-probability.")
    stream: Literal[False] = Field(default=False, description="Answers are short, and come whole.")


class TaskRequest(BaseModel):
    """A live task of the environment."""

    task: Task = Field(description="The task.")
    live_id: str | None = Field(default=None, min_length=1, description="Its identity; that of the task by default.")
    seed: int = Field(default=0, description="Seed of the episode.")


class Service:
    """The threads of a server, the one that follows the ledger and the one that flushes outcomes, and its app."""

    def __init__(
        self,
        desk: Desk,
        spool: Spool,
        tasks: LiveTasks | None,
        *,
        poll_s: float = 0.2,
        flush_s: float = 5.0,
        token: str | None = None,
    ) -> None:
        """Prepare the service.

        Args:
            desk: the versions.
            spool: the outcomes.
            tasks: answers live tasks; None: only chat completions are served.
            poll_s: seconds between two looks at the ledger.
            flush_s: seconds between two flushes of outcomes to the store.
            token: what requests must carry, if anything.
        """
        self.desk, self.spool, self.tasks, self.token = desk, spool, tasks, token
        self.poll_s, self.flush_s = poll_s, flush_s
        self.flush_trouble: str | None = None
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._follow, name="follow"), threading.Thread(target=self._flush)]

    def start(self) -> None:
        """Fill the slots, then start the threads."""
        self.desk.follow()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads, and flush once more; what cannot be flushed is on disk for the next server."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._flush_once()

    def _follow(self) -> None:
        self.desk.run(self._stopped, self.poll_s)

    def _flush(self) -> None:
        while not self._stopped.wait(self.flush_s):
            self._flush_once()

    def _flush_once(self) -> None:
        try:
            self.spool.flush()
        except Exception as error:  # a store that is down: outcomes wait on disk
            told = f"{type(error).__name__}: {error}"
            if told != self.flush_trouble:
                say(f"outcomes wait on this disk: {told}")
            self.flush_trouble = told
        else:
            self.flush_trouble = None

    def app(self) -> FastAPI:
        """The application; it starts and stops the threads."""

        @asynccontextmanager
        async def life(app: FastAPI) -> AsyncIterator[None]:
            self.start()
            yield
            self.stop()

        app = FastAPI(title="ratchet serve", lifespan=life, openapi_url=None)
        app.middleware("http")(self._authenticated)
        app.exception_handler(RequestValidationError)(_invalid)
        app.get("/health")(self.health)
        app.get("/v1/models")(self.models)
        app.post("/v1/chat/completions", response_model=None)(self.chat)
        app.post("/v1/tasks", response_model=None)(self.task)
        return app

    async def _authenticated(self, request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if self.token and request.url.path != "/health" and not hmac.compare_digest(given, self.token.encode()):
            return refused(401, "a request carries the token of this server: Authorization: Bearer ...")
        return await answer(request)

    def health(self) -> dict[str, Any]:
        """What stands where, since when, and what is wrong."""
        table = self.desk.table
        trouble = [said for said in (self.desk.trouble, self.flush_trouble) if said]
        return {
            "status": "empty" if not table.slots else "degraded" if trouble else "ok",
            "line": f"{self.desk.tenant}/{self.desk.experiment}",
            "position": table.seq,
            "moved_at": self.desk.moved_at,
            "slots": {slot: {"version": one.identity, **facts(one)} for slot, one in table.slots.items()},
            "canary_share": table.share,
            "outcomes_waiting": self.spool.backlog,
            "trouble": trouble,
        }

    def models(self) -> dict[str, Any]:
        """The loaded versions, as OpenAI lists models."""
        slots: dict[str, list[str]] = {}
        for slot, one in self.desk.table.slots.items():
            slots.setdefault(one.identity, []).append(slot)
        rows = [{"id": name, "object": "model", "owned_by": "ratchet", "slots": own} for name, own in slots.items()]
        return {"object": "list", "data": rows}

    def chat(self, body: ChatRequest) -> dict[str, Any] | Response:
        """Answer a conversation with the version in a slot, or with one that is named."""
        table = self.desk.table
        served = table.find(body.model)
        if served is None:
            loaded = ", ".join(f"{slot} ({one.identity[:12]})" for slot, one in table.slots.items())
            return refused(404, f"model {body.model!r} is not loaded; loaded are {loaded or 'none'}")
        own = served.policy.harness.decoding
        asked = {"temperature": body.temperature, "top_p": body.top_p}
        limit = body.max_completion_tokens or body.max_tokens or own.max_tokens_per_turn
        decoding = own.model_copy(
            update={name: value for name, value in asked.items() if value is not None}
            | {"max_tokens_per_turn": min(limit, own.max_tokens_per_turn)}
        )
        seed = str(body.seed) if body.seed is not None else uuid.uuid4().hex
        answer = served.answer([one.message() for one in body.messages], decoding, n=body.n, seed=seed)
        return completion(served, answer, with_logprobs=body.logprobs)

    def task(self, body: TaskRequest) -> dict[str, Any] | Response:
        """Play one live task to its end, and keep its outcome."""
        if self.tasks is None:
            return refused(404, "this server plays no tasks; see `ratchet serve --help`")
        spec = self.tasks.work.environment.spec
        if (body.task.environment, body.task.environment_version) != (spec.name, spec.version):
            seen = f"{body.task.environment} {body.task.environment_version}"
            return refused(400, f"the task is of {seen}, and this line works in {spec.name} {spec.version}")
        try:
            outcome, known = self.tasks.answer(body.live_id or body.task.task_id, body.task, body.seed)
        except NothingServes:
            return refused(503, "nothing stands in production, and there is no baseline to serve")
        return {**outcome.model_dump(mode="json"), "repeated": known}


def facts(served: Served) -> dict[str, str]:
    """What identifies a loaded version."""
    policy = served.policy
    return {"name": policy.name, "policy_digest": policy.digest, "weights_digest": policy.weights_digest}


def completion(served: Served, answer: Answer, *, with_logprobs: bool) -> dict[str, Any]:
    """An answer as OpenAI's clients read it."""
    decode = served.rendering.tokenizer.decode
    choices = []
    for index, (turn, text) in enumerate(zip(answer.turns, answer.texts, strict=True)):
        rows: list[dict[str, Any]] = [
            {"token": str(decode([token])), "token_id": token, "logprob": logprob, "bytes": None, "top_logprobs": []}
            for token, logprob in zip(turn.ids, turn.logprobs, strict=True)
        ]
        choices.append(
            {
                "index": index,
                "message": {"role": "assistant", "content": text},
                "finish_reason": turn.finish_reason,
                "logprobs": {"content": rows} if with_logprobs else None,
            }
        )
    sampled = sum(len(turn.ids) for turn in answer.turns)
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": served.identity,
        "system_fingerprint": served.policy.digest,
        "choices": choices,
        "usage": {
            "prompt_tokens": len(answer.prompt_ids),
            "completion_tokens": sampled,
            "total_tokens": len(answer.prompt_ids) + sampled,
        },
        "ratchet": facts(served) | ({"prompt_token_ids": answer.prompt_ids} if with_logprobs else {}),
    }


def refused(status: int, message: str) -> Response:
    """An error as OpenAI's clients read it."""
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "code": status}}, status)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors())
    return refused(400, told)
