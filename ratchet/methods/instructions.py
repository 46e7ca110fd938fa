"""Instructions rewritten by reflection: GEPA (Agrawal et al., 2025, arXiv:2507.19457) over the system prompt.

GEPA plays a few cases, shows a reflection model what happened, and lets it write a better instruction; what is better
on those is played on all cases, and what is best on some of them stays a parent. The model is reached through an
OpenAI-compatible endpoint, which is told what happened in the validation cases. Its answers are remembered in
`reflections.jsonl`, so that an interrupted search asks nothing twice and counts every call that was paid for.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ratchet.contracts.canonical import digest
from ratchet.contracts.judge import Endpoint
from ratchet.errors import TrainingError
from ratchet.methods.study import add_line, read_lines

if TYPE_CHECKING:
    from ratchet.methods.harness_search import Attempt, Reflection

COMPONENT = "instruction"
EMPTY = "Do the task with the tools that you have."
"""What GEPA starts from where there is no instruction: it rewrites a text, and none is no text."""
RETRIED = (408, 409, 425, 429, 500, 502, 503, 504)
MINIBATCH = 4


class Reflector:
    """The reflection model."""

    def __init__(self, endpoint: Endpoint, file: Path) -> None:
        """Remember answers in `file`; nothing is called yet. Raises TrainingError where the key is not set."""
        self._endpoint, self._file = endpoint, file
        self.failed: TrainingError | None = None
        self._known = {line["asked"]: line for line in read_lines(file)}
        self._key = os.environ.get(endpoint.api_key_env) if endpoint.api_key_env else None
        if endpoint.api_key_env and not self._key:
            raise TrainingError(
                f"reflection model {endpoint.model!r}",
                seen=f"no {endpoint.api_key_env}",
                rule="the key of the endpoint comes from that environment variable",
                remedy="set it where the loop runs",
            )

    @property
    def cost(self) -> float:
        """What the answers cost, by the endpoint's prices; 0 where it states none."""
        read, written = self._endpoint.per_million_input_tokens or 0.0, self._endpoint.per_million_output_tokens or 0.0
        return math.fsum((one["read"] * read + one["written"] * written) / 1e6 for one in self._known.values())

    def __call__(self, prompt: str | list[dict[str, Any]]) -> str:
        """Answer a prompt.

        Raises:
            TrainingError: the endpoint refuses the request, or fails at every retry.
        """
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        asked = digest([self._endpoint.model, self._endpoint.max_tokens, messages])
        if asked not in self._known:
            body = self._ask({"model": self._endpoint.model, "messages": messages,
                              "max_tokens": self._endpoint.max_tokens, "temperature": 1.0})  # fmt: skip
            usage = body.get("usage") or {}
            line = {"asked": asked, "answer": body["choices"][0]["message"]["content"],
                    "read": usage.get("prompt_tokens", 0), "written": usage.get("completion_tokens", 0)}  # fmt: skip
            add_line(self._file, line)
            self._known[asked] = line
        return str(self._known[asked]["answer"])

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        import requests
        from urllib3.util import Retry

        again = Retry(self._endpoint.retries, backoff_factor=0.5, status_forcelist=RETRIED, allowed_methods=None)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=again))
            try:
                response = session.post(
                    f"{self._endpoint.url.rstrip('/')}/chat/completions",
                    json=body, headers=headers, timeout=self._endpoint.timeout_s,
                )  # fmt: skip
                response.raise_for_status()
                answer: dict[str, Any] = response.json()
                answer["choices"][0]["message"]["content"].strip()
            except (requests.RequestException, ValueError, LookupError, TypeError, AttributeError) as error:
                # GEPA goes on without what it was refused, so the error is kept for whoever called it.
                self.failed = TrainingError(
                    f"reflection model {self._endpoint.model!r}",
                    seen=f"{type(error).__name__}: {error}"[:300],
                    rule="the endpoint must answer as an OpenAI-compatible one does",
                    remedy="check address, model and key; what was played is kept",
                )
                raise self.failed from None
        return answer


class _Adapter:
    """GEPA's view of a harness whose instruction may change."""

    propose_new_texts: ClassVar[None] = None

    def __init__(
        self,
        play: Callable[[str, Sequence[str]], list[Attempt]],
        score: Callable[[Attempt], float],
    ) -> None:
        self._play, self._score = play, score

    def evaluate(self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        attempts = self._play(candidate[COMPONENT], batch)
        # An attempt without an outcome says nothing for or against an instruction; GEPA wants a number.
        scores = [0.0 if one.accepted is None else self._score(one) for one in attempts]
        return EvaluationBatch(outputs=attempts, scores=scores, trajectories=attempts if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        records = [
            {"What happened": one.told, "Feedback": "accepted" if one.accepted else "not accepted", "score": score}
            for one, score in zip(eval_batch.trajectories, eval_batch.scores, strict=True)
            if one.accepted is not None
        ]
        return dict.fromkeys(components_to_update, records)


class _Quiet:
    def log(self, message: str) -> None:
        """Say nothing: the search has a progress line of its own."""


def rewrite(
    start: str,
    cases: Sequence[str],
    play: Callable[[str, Sequence[str]], list[Attempt]],
    score: Callable[[Attempt], float],
    settings: Reflection,
    *,
    seed: int,
    output: Path,
) -> tuple[str, float]:
    """Search for a better instruction.

    Args:
        start: the instruction to improve; empty for none.
        cases: ids of the cases.
        play: plays cases under an instruction.
        score: score of a valid attempt.
        settings: endpoint and budget.
        seed: of GEPA's own choices.
        output: folder of GEPA's state and of the answers.

    Returns:
        The best instruction on the cases, `start` where none was better, and what the reflection model cost.

    Raises:
        TrainingError: the endpoint does not answer, or its key is not set.
    """
    import gepa

    output.mkdir(parents=True, exist_ok=True)
    reflector = Reflector(settings.endpoint, output / "reflections.jsonl")
    adapter: Any = _Adapter(play, score)
    found: Any = gepa.optimize(
        seed_candidate={COMPONENT: start or EMPTY},
        trainset=list(cases),
        adapter=adapter,
        reflection_lm=reflector,
        reflection_minibatch_size=MINIBATCH,
        max_metric_calls=settings.attempts,
        logger=_Quiet(),
        display_progress_bar=False,
        skip_perfect_score=False,
        seed=random.Random(seed).randrange(2**31),
        raise_on_exception=True,
        stop_callbacks=lambda state: reflector.failed is not None,
    )
    if reflector.failed is not None:
        raise reflector.failed
    best = found.best_candidate[COMPONENT]
    return (start if best == (start or EMPTY) else best), reflector.cost
