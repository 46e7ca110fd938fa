"""Calls to one S3 bucket through s3fs: sent again with bounds where that can help, and failures put into plain words.

Sent again: what the server could not do (5xx, 429, throttling), what got no answer (timeouts, broken connections), and
what got damaged on the way. Not sent again: a refusal (403), something that is not there (404), a condition that does
not hold (412). A write that is sent again may have been carried out the first time, and is then what its own condition
does not hold for: who writes marks the write so that it can be told.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ratchet.errors import StoreError

if TYPE_CHECKING:
    from s3fs import S3FileSystem

T = TypeVar("T")
AGAIN = "check the server and the network, then give the same command again: it goes on where it stopped"
RIGHTS = (
    "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy: the store needs GetObject, PutObject, "
    "DeleteObject and ListBucket, and to erase ListBucketVersions, DeleteObjectVersion and AbortMultipartUpload"
)
TRANSIENT = {"SlowDown", "RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "InternalError"}
"""Codes with a 4xx status that another attempt may well not have."""
CONFLICT = "ConditionalRequestConflict"
"""Two conditional writes met in the server, which carried out neither or one: to be asked again."""


class Patience(NamedTuple):
    """How long to wait, and how often to try. The defaults outlast the restart of a server."""

    connect_s: float = 5.0
    answer_s: float = 30.0
    attempts: int = 12
    pause_s: float = 0.2
    """Before the second attempt; doubled each time."""
    longest_pause_s: float = 5.0
    whole_s: float = 120.0
    """No attempt begins later than this."""


class Absent(Exception):
    """There is no such object."""


class Unmet(Exception):
    """The condition of a write does not hold: perhaps for an attempt of the same call whose answer got lost."""


class Bucket:
    """One bucket, as the AWS variables of this process say where it is and who asks."""

    def __init__(self, name: str, patience: Patience) -> None:
        """Nothing is sent before the first call."""
        self.name, self.patience = name, patience
        self.endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS"

    @cached_property
    def _files(self) -> S3FileSystem:
        from s3fs import S3FileSystem

        once = {"total_max_attempts": 1}
        found = S3FileSystem(
            use_listings_cache=False,
            skip_instance_cache=True,
            config_kwargs={
                "connect_timeout": self.patience.connect_s,
                "read_timeout": self.patience.answer_s,
                "retries": once,
                # We send and check digests of our own; what botocore adds is not understood by every server.
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
        )
        # The one place that tries again is `call`, which knows of writes whose answer got lost.
        found.retries = 1
        return found

    def call(self, method: str, what: str, **parameters: Any) -> dict[str, Any]:
        """Call an S3 operation on the bucket.

        Args:
            method: name in botocore, such as `put_object`.
            what: the key, for messages.
            parameters: of the operation. A file as `Body` is rewound before each attempt.

        Raises:
            Absent: 404 for an object.
            Unmet: 412.
            StoreError: anything else, after the last attempt.
        """
        body = parameters.get("Body")

        def send() -> dict[str, Any]:
            if body is not None and not isinstance(body, bytes):
                body.seek(0)
            answer: dict[str, Any] = self._files.call_s3(method, Bucket=self.name, **parameters)
            return answer

        return self._patiently(method, what, send)

    def get(self, key: str, **parameters: Any) -> tuple[bytes, dict[str, Any]]:
        """Return the whole body of an object and its head; as `call`, and a body that breaks off is asked for again."""
        from fsspec.asyn import sync

        def send() -> tuple[bytes, dict[str, Any]]:
            files = self._files
            answer = files.call_s3("get_object", Bucket=self.name, Key=key, **parameters)
            data: bytes = sync(files.loop, _whole, answer["Body"])
            if len(data) != answer["ContentLength"]:
                raise ConnectionError(f"{len(data)} of {answer['ContentLength']} bytes came")
            return data, answer

        return self._patiently("get_object", key, send)

    def _patiently(self, method: str, what: str, send: Callable[[], T]) -> T:
        began = time.monotonic()
        for attempt in range(1, self.patience.attempts + 1):
            try:
                return send()
            except Exception as error:
                failure = _Failure.of(error)
                if failure is None:
                    raise
                if failure.status == 404 and failure.code != "NoSuchBucket":
                    raise Absent(what) from None
                if failure.status == 412:
                    raise Unmet(what) from None
                spent = time.monotonic() - began
                if not failure.transient or attempt == self.patience.attempts or spent > self.patience.whole_s:
                    raise self._told(method, what, failure, attempt, spent) from error
                pause = min(self.patience.pause_s * 2 ** (attempt - 1), self.patience.longest_pause_s)
                time.sleep(pause * random.uniform(0.5, 1.0))
        raise AssertionError("the last attempt returns or raises")

    def _told(self, method: str, what: str, failure: _Failure, attempts: int, spent: float) -> StoreError:
        place = f"s3://{self.name}/{what}" if what else f"s3://{self.name}"
        if failure.code == "NoSuchBucket":
            rule, remedy = "the bucket must be there", f"make the bucket {self.name}, or name another in RATCHET_STORE"
        elif failure.status in (401, 403):
            rule, remedy = f"{method} must be allowed", RIGHTS
        elif failure.code == "NoCredentials":
            rule, remedy = "S3 is asked with credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        elif failure.transient:
            tries = f"{attempts} attempts over {spent:.1f} s"
            rule, remedy = f"{self.endpoint} must carry out {method}, and did not in {tries}", AGAIN
        else:
            rule, remedy = f"{self.endpoint} must carry out {method}", "check that the endpoint speaks S3"
        return StoreError(place, seen=failure.text, rule=rule, remedy=remedy)


async def _whole(body: Any) -> bytes:
    try:
        data: bytes = await body.read()
    except BaseException:
        # A broken connection is not given back to the pool by itself.
        body.close()
        raise
    return data


class _Failure(NamedTuple):
    status: int
    code: str
    text: str
    transient: bool

    @classmethod
    def of(cls, error: Exception) -> _Failure | None:
        """Read what s3fs raised; None for what is no answer of S3 and no lack of one."""
        from aiohttp import ClientError as BrokenTransfer
        from botocore import exceptions as botocore  # type: ignore[import-untyped]
        from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

        # s3fs makes an OSError of an answer of S3, with the answer as its cause.
        cause = error.__cause__ if isinstance(error.__cause__, botocore.ClientError) else error
        if isinstance(cause, botocore.ClientError):
            status = int(cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            code = str(cause.response.get("Error", {}).get("Code", ""))
            transient = (status >= 500 and status != 501) or status == 429 or code in TRANSIENT or code == CONFLICT
            return cls(status, code, f"{status} {code}".strip(), transient)
        if isinstance(cause, botocore.NoCredentialsError):
            return cls(0, "NoCredentials", str(cause), False)
        broken = (botocore.HTTPClientError, botocore.ConnectionError, ResponseParserError)
        if isinstance(cause, (*broken, BrokenTransfer, ConnectionError, TimeoutError)):
            return cls(0, type(cause).__name__, f"{type(cause).__name__}: {cause}"[:200], True)
        if isinstance(cause, botocore.BotoCoreError):
            return cls(0, type(cause).__name__, f"{type(cause).__name__}: {cause}"[:200], False)
        return None


_open: dict[tuple[object, ...], Bucket] = {}


def variables() -> tuple[tuple[str, str], ...]:
    """The AWS variables as they stand now."""
    return tuple(sorted((key, value) for key, value in os.environ.items() if key.startswith("AWS_")))


def bucket(name: str, patience: Patience, asked_with: tuple[tuple[str, str], ...]) -> Bucket:
    """The bucket, shared by all stores of this process that were opened with the same variables.

    A connection does not live on in a forked process: each process has its own.
    """
    key = (os.getpid(), name, patience, asked_with)
    if key not in _open:
        _open[key] = Bucket(name, patience)
    return _open[key]
