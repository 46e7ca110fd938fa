"""Where MLflow asks for a login, the review queue records who answered, whatever name is claimed beside it."""

from __future__ import annotations

import base64
import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow_server import running_server
from review_world import ReviewWorld

from ratchet.release.states import State
from resources import mlflow_queues
from resources.release_queue import QUEUE

pytest.importorskip("flask_wtf", reason="Flask-WTF is missing: MLflow's login needs it")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PASSWORD = "a password for tests alone"


class Users:
    """A server with login; whose credentials this process uses is switched."""

    def __init__(self, url: str, patch: pytest.MonkeyPatch) -> None:
        self.url, self.patch = url, patch
        patch.setenv("MLFLOW_TRACKING_URI", url)

    def become(self, name: str) -> None:
        self.patch.setenv("MLFLOW_TRACKING_USERNAME", name)
        self.patch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)

    def create(self, name: str) -> None:
        token = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
        body = json.dumps({"username": name, "password": PASSWORD}).encode()
        request = urllib.request.Request(f"{self.url}/api/2.0/mlflow/users/create", body, headers)
        urllib.request.urlopen(request, timeout=60).close()


@pytest.fixture
def users(tmp_path: Path, mlflow_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Users]:
    folder = tmp_path / "server"
    folder.mkdir()
    shutil.copy(mlflow_database, folder / "mlflow.db")
    with running_server(folder, folder / "mlflow.db", password=PASSWORD) as url:
        found = Users(url, monkeypatch)
        for name in ("ada", "olga"):
            found.create(name)
        found.become("admin")
        yield found


def test_four_eyes_hold_against_the_author_under_every_name(users: Users, tmp_path: Path) -> None:
    from mlflow.genai import review_queues

    world = ReviewWorld(tmp_path / "home", four_eyes=True)
    assert world.registry.models.reached() == "login"
    with mlflow_queues.talking_to(users.url):
        queue = mlflow_queues.find(world.client.get_experiment_by_name(world.name).experiment_id, QUEUE)
        assert queue is not None
        assert (queue.created_by, len(queue.schema_ids), queue.users) == ("admin", 1, ["olga"])
        # An administrator lets Ada review, too.
        review_queues.update_review_queue(queue.queue_id, users=["olga", "ada"])

    def answered(by: str, claimed: str, name: str = "") -> str:
        (item,) = world.waiting()
        users.become(by)
        world.reply(item, "approve", "the figures hold", name=name, by=claimed)
        users.become("admin")
        world.tick()
        assert world.items()[item][0] == "complete"
        return world.outcome

    # Ada, the author of the run, as somebody else, with another name beside it, as herself, and by tag.
    assert answered("ada", "olga").startswith("no answer by ada")
    assert "four eyes" in answered("ada", "ada", name="Olga")
    users.become("ada")
    world.tag("approve", by="Olga")
    users.become("admin")
    world.tick()
    assert "a tag does not record who set it" in world.outcome
    assert world.ledger.state(world.version) is State.CANDIDATE
    assert answered("olga", "olga") == "approve by olga (the figures hold): now canary"
    (approval,) = [event for event in world.ledger.history() if event.kind == "approved"]
    assert approval.by == "olga"
    assert world.ledger.state(world.version) is State.CANARY
