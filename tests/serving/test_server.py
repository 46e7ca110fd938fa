"""The HTTP service: what clients send and get, and that no answer ever carries another version's name."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from release_world import HARNESS
from serving_http import Client, running
from serving_world import ServingWorld, checkpoint, until

from ratchet.contracts.environment import Message
from ratchet.policies.checkpoint import load
from ratchet.policies.rendering import Rendering
from ratchet.serving.outcomes import Spool
from ratchet.serving.served import forward_logprobs
from ratchet.serving.server import Service
from ratchet.store import Store

TEXT = "mend it"


def service_of(world: ServingWorld, **options: Any) -> Service:
    spool = Spool(world.home, world.store, world.tenant, world.experiment)
    return Service(world.desk(), spool, None, **{"poll_s": 0.02, **options})


@pytest.fixture
def world(tmp_path: Path) -> ServingWorld:
    return ServingWorld(tmp_path)


def trainer_says(seed: int, ids: list[int], temperature: float = 1.0) -> list[float]:
    """Log-probabilities of sampled ids after the prompt, by a plain forward pass of the stored checkpoint."""
    model, tokenizer = load(checkpoint(seed))
    prompt = Rendering(tokenizer).prompt([Message(role="user", content=TEXT)])
    return forward_logprobs(model, prompt, ids, [True] * len(ids))


def test_an_answer_says_who_made_it_and_its_log_probabilities_are_the_trainers(world: ServingWorld) -> None:
    version = world.produce("first")
    with running(service_of(world)) as client:
        found = client.chat(logprobs=True, n=3, seed=4)
        again = client.chat(logprobs=True, n=3, seed=4)
    assert found["model"] == version.id
    assert found["system_fingerprint"] == version.policy.digest
    assert found["ratchet"]["weights_digest"] == version.policy.weights_digest
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"]
    for choice in found["choices"]:
        rows = choice["logprobs"]["content"]
        assert 1 <= len(rows) <= HARNESS.decoding.max_tokens_per_turn
        said = trainer_says(1, [row["token_id"] for row in rows])
        assert [row["logprob"] for row in rows] == pytest.approx(said, abs=1e-4)
    assert [choice["message"] for choice in again["choices"]] == [choice["message"] for choice in found["choices"]]


def test_slots_and_ids_name_versions_and_anything_else_is_refused(world: ServingWorld) -> None:
    first, second = world.produce("first"), world.produce("second")
    with running(service_of(world)) as client:
        for name, version in (
            ("production", second), ("previous-production", first), (first.id, first), (second.id[:16], second)
        ):  # fmt: skip
            assert client.chat(name)["model"] == version.id
        listed = {row["id"]: row["slots"] for row in client.get("/v1/models")["data"]}
        assert listed == {second.id: ["production"], first.id: ["previous-production"]}
        for name in ("canary", "baseline", second.id[:6], "gpt-4"):
            refused = client.post(
                "/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": "x"}]}
            )
            assert refused.status_code == 404
            assert "production" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"model": "production"}, "messages"),
        ({"model": "production", "messages": []}, "messages"),
        ({"model": "production", "messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"model": "production", "messages": [{"role": "user", "content": "x"}], "n": 1000}, "n:"),
        ({"model": "production", "messages": [{"role": "user", "content": "x"}], "stream": True}, "stream"),
    ],
)
def test_a_request_that_is_none_is_told_what_is_wrong(world: ServingWorld, body: dict[str, Any], words: str) -> None:
    with running(service_of(world)) as client:
        answer = client.post("/v1/chat/completions", body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_what_clients_of_openai_send_besides_is_ignored_and_parts_are_joined(world: ServingWorld) -> None:
    parts = [{"type": "text", "text": "mend "}, {"type": "text", "text": "it"}]
    with running(service_of(world)) as client:
        plain = client.chat(seed=1)
        body = {"model": "production", "messages": [{"role": "user", "content": parts}], "seed": 1, "user": "me",
                "max_completion_tokens": 4000}  # fmt: skip
        found = client.post("/v1/chat/completions", body).json()
    assert found["choices"] == plain["choices"]


def test_a_token_is_asked_for_where_one_is_set(world: ServingWorld) -> None:
    with running(service_of(world, token="s3cret"), "s3cret") as client:
        assert client.chat()["object"] == "chat.completion"
        for other in (Client(client.url), Client(client.url, "s3cre"), Client(client.url, "s3cretx")):
            assert other.post("/v1/chat/completions", {}).status_code == 401
            assert other.get("/health")["status"] == "ok"
            other.session.close()


def test_health_says_what_stands_where_and_what_is_wrong(world: ServingWorld) -> None:
    service = service_of(world)
    with running(service) as client:
        assert client.get("/health")["slots"]["production"]["name"] == "base"
        version = world.produce("first")
        until(lambda: client.get("/health")["position"] == world.seq)
        found = client.get("/health")
        assert found["slots"]["production"]["version"] == version.id
        assert (found["status"], found["trouble"], found["outcomes_waiting"]) == ("ok", [], 0)
        service.desk.depot.store = Store(world.home / "empty")
        world.produce("second")
        until(lambda: client.get("/health")["status"] == "degraded")
        assert client.get("/health")["slots"]["production"]["version"] == version.id


def test_with_nothing_to_serve_it_says_so(world: ServingWorld) -> None:
    service = service_of(world)
    service.desk.baseline = None
    with running(service) as client:
        assert client.get("/health")["status"] == "empty"
        body = {"model": "production", "messages": [{"role": "user", "content": "x"}]}
        assert client.post("/v1/chat/completions", body).status_code == 404


SWAPS, REQUESTS, CLIENTS = 20, 500, 4


@pytest.mark.slow
def test_while_versions_change_no_request_is_answered_by_a_wrong_one(world: ServingWorld) -> None:
    """Every version draws other tokens with other log-probabilities: an answer shows by itself who made it."""
    answers: list[tuple[str, Any]] = []
    refused: list[tuple[str, int]] = []
    done = threading.Event()

    def ask(client: Client, number: int) -> None:
        while not done.is_set():
            model = ("production", "previous-production")[number % 2]
            body = {"model": model, "messages": [{"role": "user", "content": TEXT}], "logprobs": True}
            answer = client.post("/v1/chat/completions", body)
            if answer.status_code == 200:
                answers.append((model, answer.json()))
            else:
                refused.append((model, answer.status_code))
            number += 1

    first = world.produce("v0")
    seeds = {first.id: 1, "baseline": 0}
    stood: dict[str, set[str]] = {"production": {first.id}, "previous-production": {"baseline"}}
    with running(service_of(world)) as client:
        clients = [Client(client.url) for _ in range(CLIENTS)]
        threads = [threading.Thread(target=ask, args=(one, number)) for number, one in enumerate(clients)]
        for thread in threads:
            thread.start()
        try:
            for swap in range(SWAPS):
                if swap % 4 == 3:
                    world.ledger.rollback(world.tenant, world.experiment, by="Olga", reason="swap")
                else:
                    seeds[world.produce(f"v{swap + 1}").id] = len(seeds)
                slots = world.ledger.current(world.tenant, world.experiment)
                stood["production"].add(slots.production.id if slots.production else "baseline")
                previous = slots.previous_production
                stood["previous-production"].add(previous.id if previous else "baseline")
                target = len(answers) + REQUESTS // SWAPS
                until(lambda: client.get("/health")["position"] == world.seq, 60)
                until(lambda target=target: len(answers) >= target, 60)  # type: ignore[misc]
        finally:
            done.set()
            for thread in threads:
                thread.join()
            for one in clients:
                one.session.close()
    assert len(answers) >= REQUESTS
    # In the moment of a rollback nothing stands behind production yet: that is said, and production always answers.
    assert set(refused) <= {("previous-production", 404)}
    models = {identity: load(checkpoint(seed))[0] for identity, seed in seeds.items()}
    prompt = Rendering(load(checkpoint(0))[1]).prompt([Message(role="user", content=TEXT)])
    wrong = 0
    for model, answer in answers:
        rows = answer["choices"][0]["logprobs"]["content"]
        ids, said = [row["token_id"] for row in rows], [row["logprob"] for row in rows]
        own = forward_logprobs(models[answer["model"]], prompt, ids, [True] * len(ids))
        wrong += own != pytest.approx(said, abs=1e-4) or answer["model"] not in stood[model]
    assert wrong == 0
    seen = Counter(answer["model"] for _, answer in answers)
    assert len(seen) >= 12
    other = forward_logprobs(models["baseline"], prompt, ids, [True] * len(ids))
    assert answer["model"] == "baseline" or other != pytest.approx(said, abs=1e-2)
