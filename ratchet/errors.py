"""The one tree of errors that a person may see.

Every message names, in one sentence, the culprit, the value seen, the rule and the remedy. `RatchetError` is what the
CLI prints without a traceback; anything else that escapes is a bug.
"""

from __future__ import annotations


class RatchetError(Exception):
    """Base of all errors that Ratchet raises on purpose."""

    def __init__(self, culprit: str, *, seen: object = None, rule: str, remedy: str) -> None:
        """Keep the four parts apart, so that a caller can show or test each of them.

        Args:
            culprit: what is wrong: a path, an id, a field.
            seen: the value that was found (shown with `repr`), or None where there is none to show.
            rule: what must hold.
            remedy: what the reader can do about it.
        """
        self.culprit, self.seen, self.rule, self.remedy = culprit, seen, rule, remedy
        value = "" if seen is None else f" is {seen!r}"
        super().__init__(f"{culprit}{value}: {rule}; {remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.culprit, self.seen, self.rule, self.remedy))


def _rebuild(kind: type[RatchetError], culprit: str, seen: object, rule: str, remedy: str) -> RatchetError:
    return kind(culprit, seen=seen, rule=rule, remedy=remedy)


class ManifestError(RatchetError):
    """The experiment manifest is not valid; the message lists every mistake."""


class IntegrityError(RatchetError):
    """Stored content does not match the digest it is known by."""


class ConflictError(RatchetError):
    """Somebody else was first: a compare-and-swap or a create-if-absent lost."""


class RightsError(RatchetError):
    """A training right is missing, expired, withdrawn, too narrow or belongs to another tenant."""


class IntakeError(RatchetError):
    """A source as a whole cannot be read (a single bad record is quarantined instead)."""


class SplitError(RatchetError):
    """A split lock is impossible, has been changed, or does not cover what is asked of it."""


class ContaminationError(RatchetError):
    """Training data and locked tasks share something that they must not share."""


class PermissionsError(RatchetError):
    """A harness or an episode asks for a tool, path, host or limit beyond the experiment's permissions."""


class SandboxError(RatchetError):
    """The sandbox cannot be built or has died; never the fault of the code that runs in it."""


class TooManyInvalid(RatchetError):
    """More episodes are invalid than the manifest allows; the stage stops."""


class EligibilityError(RatchetError):
    """A checkpoint may not be trained: licence, weights, tenant or training permission."""


class TrainingError(RatchetError):
    """A trainer diverged, lost its rights or ran out of its budget without a checkpoint."""


class NothingToLearn(TrainingError):
    """A method found nothing to learn from: its candidate is left out, and the others go on."""


class EvaluationError(RatchetError):
    """Held-out rows are missing, double or belong to another evaluation; or the evaluation is void."""


class HeldoutError(RatchetError):
    """Training asks for held-out data, or nothing on this machine can keep it from asking."""


class TransitionError(RatchetError):
    """A release transition that the table of states does not allow, or that no decision carries."""


class SignatureError(RatchetError):
    """A release is not signed, or not by a trusted key, or a key cannot be used."""


class UntrustedError(SignatureError):
    """A signature is made by keys that do not count: unknown ones, or ones that were retired or revoked."""


class EngineError(RatchetError):
    """An inference engine is away, cannot serve a version, or answered as another one."""


class StoreError(RatchetError):
    """The object store cannot be reached, refuses what it is asked, or does not keep what it promises."""
