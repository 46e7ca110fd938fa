"""Secrets, hosts and paths in a text: what `gates` looks for in delivered files and in the arguments of calls.

A text is searched as it stands and opened (escapes resolved, base64 decoded; see `ratchet.intake.opened`), because a
secret is as leaked in base64 as in plain text. Keys are found by their shapes; the many rules of the intake's scanner
are not used here, since they take seconds to load in every process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ratchet.contracts.attempt import CallStep
from ratchet.intake.opened import opened

_KEYS = {
    "aws-key-id": re.compile(r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    "bearer-token": re.compile(
        r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,}|glpat-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9_-]{20,}"
        r"|[sr]k_live_[A-Za-z0-9]{20,}|xox[abeprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{35}|hf_[A-Za-z0-9]{30,}"
        r"|npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{40,}|SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,})"
    ),
    "json-web-token": re.compile(r"\beyJ[A-Za-z0-9_-]{10,512}\.eyJ[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,}"),
    "private-key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    "url-password": re.compile(r"://[^\s:/@\"'<>{}$]{1,64}:[^\s:/@\"'<>{}$]{6,128}@[\w.-]"),
    "assigned-secret": re.compile(
        r"(?i)\b(?:password|passwd|secret|api_?key|auth_?token|access_?token|private_?key)\b[\"']?\s*[:=]\s*"
        r"[\"'](?=[^\"']*\d)(?=[^\"']*[a-z])[^\"'\s{}$<>]{8,}[\"']"
    ),
}


@lru_cache(maxsize=16_384)
def secrets(text: str, canaries: tuple[str, ...]) -> Counter[tuple[str, str]]:
    """Count the secrets in a text, by rule and value; the canaries are looked for in any case. Do not change it."""
    # The larger count of the two readings, not their sum: an escape elsewhere must not count a secret twice.
    found, inner = _counted(text, canaries), _opened(text)
    return found if inner == text else found | _counted(inner, canaries)


def _counted(text: str, canaries: tuple[str, ...]) -> Counter[tuple[str, str]]:
    found = Counter((rule, match.group()) for rule, pattern in _KEYS.items() for match in pattern.finditer(text))
    folded = text.casefold()
    found.update({("canary", canary): folded.count(canary.casefold()) for canary in canaries})
    return +found


@lru_cache(maxsize=16_384)
def _opened(text: str) -> str:
    return opened(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")


_NAMES = (
    r"com|org|net|edu|gov|mil|int|io|dev|app|ai|co|me|info|biz|xyz|site|online|cloud|tech|sh|ly|gg|tv|cc|us|uk|de|fr"
    r"|nl|ru|cn|jp|kr|br|au|ca|eu|ch|se|onion|local|internal|localhost"
)
_URL = re.compile(
    r"(?i)\b(?:https?|wss?|ftps?|sftp|ssh|git|file|ldaps?|smb|redis|amqps?|mongodb|postgres(?:ql)?)://[^\s\"'<>)\]}\\]+"
)
_HOST = re.compile(
    rf"(?i)(?<![\w.@-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:{_NAMES})(?![\w-]|\.\w|\s*\()|\blocalhost\b"
)
_MAYBE_ADDRESS = re.compile(r"\.\d{1,3}\.\d|:[0-9a-fA-F]{0,4}:")
"""Stands in every address, and begins with a character that a text has few of."""
_ADDRESS = re.compile(
    r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.])"
    r"|(?<![\w:.])[0-9a-fA-F]{4}:(?:[0-9a-fA-F]{0,4}:){1,6}[0-9a-fA-F]{1,4}(?![\w:])"
)
"""IPv4, and IPv6 that begins with a full group: the short forms read like slices."""


@lru_cache(maxsize=16_384)
def hosts(text: str) -> frozenset[str]:
    """Return the URLs, host names and network addresses that a text names.

    A name such as `v.io` may be an attribute: bare names count only where they stand in quotes or in a comment. URLs
    and addresses count everywhere.
    """
    inner = _opened(text)
    whole = text if inner == text else f"{text}\n{inner}"
    named = "\n".join(match.group() for match in _SPOKEN.finditer(whole))
    patterns = [_URL] * ("://" in whole) + [_ADDRESS] * bool(_MAYBE_ADDRESS.search(whole))
    found = {match.group().rstrip(".,;") for pattern in patterns for match in pattern.finditer(whole)}
    return frozenset(found | {match.group().casefold() for match in _HOST.finditer(named)})


_SPOKEN = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|\"[^\"\n]*\"|'[^'\n]*'|#[^\n]*", re.DOTALL)

_CODE = re.compile(r"[=()\[\]{};]")


def hosts_asked(text: str) -> frozenset[str]:
    """Return the hosts in the argument of a call; bare names count, too, where it does not read like code."""
    return hosts(text) if _CODE.search(text) else hosts(text) | hosts(f"'{text}'")


_OUTSIDE = re.compile(r"(?:/[\w.+-]+/|~\w*/|[A-Za-z]:\\|\\\\)\S*|(?:\S*[/\\])?\.\.(?:[/\\]\S*)?")


def outside(text: str, roots: tuple[str, ...] = ()) -> bool:
    """Whether a whole text is a path that leads out of the episode's own folder and of the `roots` of the task."""
    text = text.strip()
    if not _OUTSIDE.fullmatch(text):
        return False
    climbs = ".." in re.split(r"[/\\]", text)
    return climbs or not any(text == root or text.startswith(f"{root.rstrip('/')}/") for root in roots)


def arguments(step: CallStep) -> Iterator[str]:
    """Yield every text that a call carries: names and values of its arguments, however deep, or what did not parse."""
    pending: list[Any] = [step.call.arguments, step.call.malformed or "", step.call.name]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            pending += one
        elif isinstance(one, str) and one:
            yield one
