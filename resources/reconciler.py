"""The reconciler: what MLflow shows is made what the release ledger says, and interference is told from lag.

An alias or a state may be what the ledger said at or after the position that was projected last (`ratchet.seq`).
Anything else was done by hand: it becomes an incident and is put right. Who did it MLflow does not record. A version
that the ledger does not hold is reported and left alone; it gets no alias. `production` is written after
`previous-production`. A slot is given to a version only after its release certificate and its files were verified: who
loads a model by its alias gets what was judged, or what was there before.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ratchet.errors import IntegrityError, SignatureError, TransitionError
from ratchet.release.certificate import verify_certificate
from ratchet.release.evidence import latest_bundle
from ratchet.release.ledger import Ledger
from ratchet.release.records import ALIASES, Event, Incident, Version
from ratchet.release.standing import replay
from resources.answers import REVIEW, REVIEW_BY, REVIEW_REASON
from resources.mlflow_models import EVIDENCE, REGISTERED, VERSION, Models, model_name

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

CERTIFIED_WITHIN = timedelta(minutes=5)
SEQ = "ratchet.seq"
STATE = "ratchet.state"
RIGHTS, RIGHTS_REASON = "ratchet.rights", "ratchet.rights.reason"
"""Only on versions behind which a right has ended."""
CANARY, QUESTION = "ratchet.canary", "ratchet.question"
"""What live tasks came to, and what of it waits for the owner; only on versions whose window was closed."""
DESCRIPTION = (
    "Projection of Ratchet's release ledger; changes made here are reported and undone. To answer a review, open the "
    "review queue of the experiment of the same name, or open a version and set the tags "
    f"`{REVIEW_BY}` (your name), `{REVIEW_REASON}` and `{REVIEW}` (approve or reject)."
)


class Reconciler:
    """One pass of the reconciler over one registered model."""

    def __init__(self, models: Models, ledger: Ledger, tenant: str, experiment: str, events: list[Event]) -> None:
        """Prepare a pass that brings MLflow to where the line stood after `events`."""
        self.models, self.store, self.client = models, models.store, models.client
        self.ledger, self.tenant, self.experiment, self.events = ledger, tenant, experiment, events
        self.name = model_name(tenant, experiment)
        self.incidents: list[Incident] = []

    def run(self) -> list[Incident]:
        """Do it; returns what was changed by hand."""
        model = self._registered_model()
        self._read_positions(model)
        numbers = self._ensure_versions()
        complete = self._ensure_aliases({alias: str(number) for alias, number in model.aliases.items()}, numbers)
        # A slot that is withheld stays what it was, which must not look like interference later.
        if complete and model.tags.get(SEQ) != str(self.events[-1].seq):
            self.client.set_registered_model_tag(self.name, SEQ, str(self.events[-1].seq))
        return self.incidents

    def _registered_model(self) -> RegisteredModel:
        from mlflow.exceptions import MlflowException

        try:
            return self.client.get_registered_model(self.name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
        tags = {SEQ: "0", "ratchet.tenant": self.tenant, "ratchet.experiment": self.experiment}
        return self.client.create_registered_model(self.name, tags=tags, description=DESCRIPTION)

    def _read_positions(self, model: RegisteredModel) -> None:
        """Learn what may stand in MLflow without anybody having touched it."""
        stated = model.tags.get(SEQ, "")
        last = self.events[-1].seq
        since = int(stated) if stated.isdigit() and int(stated) <= last else last
        if str(since) != stated:
            self._incident(f"tag {SEQ} of {self.name}", stated or "missing", f"a position up to {last}")
        self.allowed_slots: dict[str, set[str | None]] = {slot: set() for slot in ALIASES}
        self.allowed_states: dict[str, set[str]] = {}
        for standing in replay(self.events, since):
            self.slots, self.states = standing.slots(), standing.states
            for slot, version in self.slots.items():
                self.allowed_slots[slot].add(version)
            for version_id, state in standing.states.items():
                self.allowed_states.setdefault(version_id, set()).add(str(state))

    def _ensure_versions(self) -> dict[str, str]:
        """Make missing versions and set tags; returns version numbers by version id."""
        present: dict[str, ModelVersion] = {}
        for item in self.models.versions(self.name):
            identity = item.tags.get(VERSION) or self._identity_by_source(item)
            if identity not in self.states or identity in present:
                self._incident(
                    f"version {item.version} of {self.name}",
                    f"made from {item.source}",
                    "only versions that the release ledger holds",
                    repaired=False,
                )
            else:
                present[identity] = item
        numbers = {identity: str(item.version) for identity, item in present.items()}
        experiment_id = self.models.experiment(self.name)
        for identity in self.states:
            version = self.ledger.version(identity)
            tags = self._tags(version)
            if identity in present:
                self._ensure_tags(version, present[identity], tags)
                number = str(present[identity].version)
            else:
                number = self._make(version, experiment_id, tags)
            numbers[identity] = number
            self._ensure_evidence(version, number, experiment_id, present.get(identity))
        return numbers

    def _identity_by_source(self, item: ModelVersion) -> str:
        from mlflow.exceptions import MlflowException

        if not item.source or not item.source.startswith("models:/m-"):
            return ""
        try:
            model = self.client.get_logged_model(item.source.removeprefix("models:/"))
        except MlflowException:
            return ""
        registered = model.tags.get(REGISTERED) == str(item.version)
        return str(model.tags.get(VERSION, "")) if registered else ""

    def _make(self, version: Version, experiment_id: str, tags: dict[str, str]) -> str:
        model = self.models.ensure_logged(experiment_id, version.id, version.manifest_digest, version.policy)
        gone = model.tags.get(REGISTERED)
        number = self.models.register(self.name, model, tags, f"{version.policy.name}, made by {version.policy.method}")
        if gone:
            self._incident(f"version {gone} of {self.name}", "deleted", f"{version.label}, now version {number}")
        return number

    def _tags(self, version: Version) -> dict[str, str]:
        mine = [event for event in self.events if event.version == version.id]
        moved = [event for event in mine if event.kind in ("registered", "moved")][-1]
        decided = [event.decision for event in mine if event.decision]
        ended = [event for event in mine if event.kind in ("withdrawn", "expired")]
        worst = next((event.kind for event in ended if event.kind == "withdrawn"), "expired")
        rights = {RIGHTS: f"affected_{worst}", RIGHTS_REASON: "; ".join(event.reason for event in ended)}
        watched = [event for event in mine if event.kind == "watched"]
        # Asked as long as the version stands where its live tasks came to something and nothing followed.
        asked = watched[-1].reason if watched and watched[-1].seq > moved.seq else "nothing"
        live = {CANARY: watched[-1].reason, QUESTION: asked} if watched else {}
        return (rights if ended else {}) | live | self._facts(version, moved, decided[-1] if decided else "none yet")

    @staticmethod
    def _facts(version: Version, moved: Event, decision: str) -> dict[str, str]:
        return {
            VERSION: version.id,
            "ratchet.policy": version.policy.digest,
            "ratchet.weights": version.policy.weights_digest,
            "ratchet.manifest": version.manifest_digest,
            "ratchet.name": version.policy.name,
            STATE: str(moved.state),
            "ratchet.reason": moved.reason or "none given",
            "ratchet.by": moved.by,
            "ratchet.at": moved.at,
            "ratchet.decision": decision,
        }

    def _ensure_tags(self, version: Version, item: ModelVersion, tags: dict[str, str]) -> None:
        constant = (VERSION, "ratchet.policy", "ratchet.weights", "ratchet.manifest", "ratchet.name")
        for key, value in tags.items():
            seen = item.tags.get(key)
            by_hand = key in constant or (key == STATE and seen not in self.allowed_states[version.id])
            if seen != value:
                if by_hand:
                    self._incident(f"tag {key} of version {item.version} of {self.name}", seen or "missing", value)
                self.client.set_model_version_tag(self.name, str(item.version), key, value)

    def _ensure_evidence(self, version: Version, number: str, experiment_id: str, item: ModelVersion | None) -> None:
        bundle = latest_bundle(self.store, version.id)
        if bundle is None or (item is not None and item.tags.get(EVIDENCE) == bundle.digest):
            return
        model = self.models.logged(experiment_id, version.id)
        if model is not None:
            self.models.evidence(model, bundle.to_bytes())
            self.client.set_model_version_tag(self.name, number, EVIDENCE, bundle.digest)

    def _ensure_aliases(self, seen: dict[str, str], numbers: dict[str, str]) -> bool:
        """Bring the aliases to the ledger's slots; returns whether all of them are there now."""
        by_number = {number: identity for identity, number in numbers.items()}
        complete = True
        for slot, alias in ALIASES.items():
            number, wanted = seen.get(alias), self.slots[slot]
            target = numbers[wanted] if wanted else None
            if number == target:
                continue
            withheld = bool(wanted) and self._withheld(alias, str(wanted))
            holder = by_number.get(number, "unknown") if number else None
            if holder not in self.allowed_slots[slot]:
                self._incident(
                    f"alias {alias} of {self.name}",
                    f"version {number}" if number else "deleted",
                    f"version {target}" if target else "not set",
                    repaired=not withheld,
                )
            if withheld:
                complete = False
                continue
            if target:
                self.client.set_registered_model_alias(self.name, alias, target)
            else:
                self.client.delete_registered_model_alias(self.name, alias)
        for alias in sorted(seen.keys() - ALIASES.values()):
            self._incident(f"alias {alias} of {self.name}", f"version {seen[alias]}", "not set")
            self.client.delete_registered_model_alias(self.name, alias)
        return complete

    def _withheld(self, alias: str, identity: str) -> bool:
        """Whether a slot is not given to a version: it has no valid certificate, or has moved on meanwhile."""
        if alias == ALIASES["previous_production"]:
            return False
        version = self.ledger.version(identity)
        try:
            verify_certificate(self.store, self.ledger, version)
        except TransitionError:
            return True
        except (IntegrityError, SignatureError) as error:
            moved = [event for event in self.events if event.version == identity and event.kind == "moved"][-1]
            # The certificate is written right after the ledger has moved.
            if datetime.now(UTC) - datetime.fromisoformat(moved.at) > CERTIFIED_WITHIN:
                expected = f"a valid release certificate of {version.label}"
                self._incident(f"alias {alias} of {self.name}", str(error), expected, repaired=False)
            return True
        return False

    def _incident(self, what: str, seen: str, expected: str, *, repaired: bool = True) -> None:
        self.incidents.append(
            Incident(
                tenant=self.tenant,
                experiment=self.experiment,
                what=what,
                seen=seen,
                expected=expected,
                repaired=repaired,
                at=datetime.now(UTC).isoformat(),
            )
        )
