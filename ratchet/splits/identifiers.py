"""Identifiers as contamination sees them: repos, issues, commits and URLs, however they are written.

An identifier is reduced to a key: its words without scheme, known host, `.git`, and the `issues`, `pull` and the like
between a repo and a number, so `https://github.com/Owner/Name/issues/12`, `git@github.com:owner/name#12` and
`owner/name#12` are one. Mentions in text are found by whole words, so `HumanEval/1` is not found in `HumanEval/12`.
What is too common to be a name by itself (`issue 5`, a plain word, a bare number) is compared as an identifier and
never looked for in text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ratchet.contracts.environment import Task
from ratchet.splits.text import Hashes, contains, grams, grams_at, hash_words, normalise, words

Key = tuple[str, ...]
# Payload keys that environments use for what identifies a task elsewhere.
PAYLOAD_KEYS = ("base_commit", "commit", "issue_url", "mirrors", "pull_request", "repo_url", "url")

_HOST = re.compile(
    r"^(?:[a-z+]+://)?(?:[^/@\s]+@)?(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org|codeberg\.org)[/:]"
)
_PAGE = re.compile(r"^([^?#]+/(?:issues|pull|pulls|merge_requests)/\d+)(?![^/?#]).*", re.DOTALL)
"""The page of an issue on such a host; what follows (`/files`, `?tab=1`, `#issuecomment-9`) is a place on it."""
_SCHEME = re.compile(r"^[a-z+]+://(?:www\.)?")
_CONNECTORS = frozenset({"issue", "issues", "pull", "pulls", "pr", "prs", "merge", "requests", "commit", "tree"})
_NUMBER_PATHS: tuple[Key, ...] = (
    ("issues",), ("issue",), ("pull",), ("pull", "request"), ("pr",), ("gh",), ("git",), ("bug",), ("ticket",),
    ("merge", "request"), ("merge", "requests"),
)  # fmt: skip
# fmt: off
_COMMON = frozenset({
    "bug", "case", "chapter", "example", "exercise", "figure", "file", "fix", "issue", "issues", "item", "line",
    "number", "page", "part", "problem", "pull", "python", "question", "section", "step", "table", "task", "test",
    "ticket", "version",
})
# fmt: on
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SHA = re.compile(r"^[0-9a-f]{40}$")
_SHORT_SHA = 7
_DOTTED = 3
"""Words above which a name without a number is a host and a path, and dots may stand between them."""


class Names(NamedTuple):
    """What identifies one task: keys to compare, and phrases to look for in text."""

    keys: frozenset[Key]
    phrases: frozenset[Key]


def key_of(value: str) -> Key:
    """The words that identify, in order; empty where there are none."""
    plain, hosted = _HOST.subn("", value.strip().lower())
    plain = _PAGE.sub(r"\1", plain) if hosted else _SCHEME.sub("", plain)
    plain = re.sub(r"\.git(?=$|[/#])", "", plain.rstrip("/"))
    tokens = words(plain)
    # A connector goes only between a name and a number: a repo may well be called `pr`.
    kept = [
        token
        for at, token in enumerate(tokens)
        if not (
            token in _CONNECTORS and at > 0 and any(later.isdigit() or _hexadecimal(later) for later in tokens[at:])
        )
    ]
    return tuple(kept)


def issue_key(task: Task) -> Key:
    """The key of a task's issue, with its repo where the issue's own words name nothing (`12`, `bug-12`)."""
    own = key_of(task.issue_id)
    return own if _telling(own) else (*key_of(task.repo), *own)


def names_of(task: Task, *, keys: Iterable[str], aliases: Mapping[str, str]) -> Names:
    """Collect what identifies a task.

    Args:
        task: the task; its id always counts, and what its payload holds under `PAYLOAD_KEYS`.
        keys: which of `repo` and `issue_id` tasks of two splits may not share.
        aliases: other name of a repo -> its name: renames and mirrors.
    """
    wanted = set(keys)
    roots = {key_of(alias): key_of(name) for alias, name in aliases.items()}
    repo = key_of(task.repo)
    repo_names = {repo, roots.get(repo, repo)}
    repo_names |= {alias for alias, root in roots.items() if root in repo_names}
    raw = [task.task_id, *_strings(task.payload.get(name) for name in PAYLOAD_KEYS)]
    identifying = {key_of(value) for value in [*raw, *filter(None, map(_without_query, raw))]}
    if "issue_id" in wanted:
        issue = issue_key(task)
        identifying.add(issue)
        raw.append(task.issue_id if issue == key_of(task.issue_id) else f"{task.repo}#{task.issue_id}")
    if "repo" in wanted:
        identifying |= repo_names
        raw.append(task.repo)
    for own in list(identifying):
        if len(own) > len(repo) and own[: len(repo)] == repo:
            identifying |= {(*other, *own[len(repo) :]) for other in repo_names}
    # A key that is a mere number says nothing by itself.
    found = frozenset(key for key in identifying if any(not word.isdigit() for word in key))
    return Names(found, frozenset(phrase for key in found for phrase in _phrases(key)) | _spellings(raw))


def _phrases(key: Key) -> set[Key]:
    found = {key} if _telling(key) else set()
    if len(key) > 1 and key[-1].isdigit() and found:
        found |= {(*key[:-1], *path, key[-1]) for path in _NUMBER_PATHS}
    for word in key:
        if _SHA.match(word):
            found |= {(word[:length],) for length in range(_SHORT_SHA, 41) if not word[:length].isdigit()}
    return found


def _spellings(raw: Iterable[str]) -> frozenset[Key]:
    """`HumanEval/1` is also written `human_eval_1` and `HumanEval1`."""
    found: set[Key] = set()
    for value in raw:
        key = key_of(value)
        split = key_of(_CAMEL.sub(" ", value))
        found |= {one for one in (split, ("".join(key),)) if _telling(one)}
    return frozenset(found)


def _telling(key: Key) -> bool:
    """Whether a phrase names something even in running text."""
    if len(key) == 1:
        word = key[0]
        return len(word) >= _SHORT_SHA and any(c.isdigit() for c in word) and any(c.isalpha() for c in word)
    return any(len(word) >= 3 and not word.isdigit() and word not in _COMMON for word in key)


class Mentions:
    """Finds in text the phrases that name tasks."""

    def __init__(self, names: Iterable[Names], common_phrases: frozenset[Key], common_keys: frozenset[Key]) -> None:
        """Index the names of tasks, without the phrases and the keys that are common property."""
        self._by_key: dict[Key, list[int]] = {}
        self._by_phrase: dict[int, dict[int, Key]] = {}
        for number, one in enumerate(names):
            for key in (one.keys | one.phrases) - common_keys:
                self._by_key.setdefault(key, []).append(number)
            for phrase in one.phrases - common_phrases - common_keys:
                hashed = int(grams(hash_words(phrase), len(phrase))[0])
                self._by_phrase.setdefault(len(phrase), {})[hashed] = phrase
        first = {phrase[0] for table in self._by_phrase.values() for phrase in table.values()}
        self._first = np.sort(hash_words(sorted(first)))
        self._sorted = {
            length: np.sort(np.fromiter(table, dtype=np.uint64, count=len(table)))
            for length, table in self._by_phrase.items()
        }

    def owners(self, key: Key) -> list[int]:
        """Numbers of the tasks that a key or phrase names."""
        return self._by_key.get(key, [])

    def found(self, text: str, hashed: Hashes) -> set[Key]:
        """Phrases that occur in `text` as whole words with the separators of a name; `hashed` are the text's words."""
        # Few words begin a name: only what follows those is hashed.
        starts = np.flatnonzero(contains(self._first, hashed))
        candidates = {
            self._by_phrase[length][int(value)]
            for length, table in self._sorted.items()
            for value in _among(table, grams_at(hashed, starts, length))
        }
        plain = normalise(text) if candidates else ""
        return {phrase for phrase in candidates if pattern_of(phrase).search(plain)}


@lru_cache(maxsize=65_536)
def pattern_of(phrase: Key) -> re.Pattern[str]:
    """The expression that finds a phrase in normalised text.

    A phrase with a number may be spelled with spaces; one without needs the separators of a path, or the words of any
    sentence would do. `my-owner/name` and, where no number ends the phrase, `owner/name-more` are other names.
    """
    first, *rest = map(re.escape, phrase)
    if any(c.isdigit() for word in phrase for c in word):
        start = rf"(?<![^\W_])(?:(?<![^\W_]-)|(?!{first}\s?/)){first}"
        between, end = r"[/_\-#!.: ]{1,3}", r"(?![^\W_]|\.\d)"
    else:
        start = rf"(?<![^\W_])(?<![^\W_]-){first}"
        between = r"(?: ?/ ?|__|-|\.)" if len(phrase) > _DOTTED else r"(?: ?/ ?|__|-)"
        end = r"(?![^\W_]|[-_]+[^\W\d_]|\.(?!git(?![^\W_]))[^\W\d_])"
    return re.compile(f"{start}{''.join(between + word for word in rest)}{end}")


def _among(table: Hashes, queries: Hashes) -> Hashes:
    return queries[contains(table, queries)]


def _without_query(value: str) -> str | None:
    """A URL up to its query and fragment, where its path has a number that tells the page from others."""
    path = re.split(r"[?#]", value, maxsplit=1)[0]
    return path if "://" in value and path != value and re.search(r"/[^/]*\d[^/]*$", path) else None


def _hexadecimal(word: str) -> bool:
    return len(word) >= _SHORT_SHA and all(c in "0123456789abcdef" for c in word)


def _strings(values: Iterable[object]) -> list[str]:
    found: list[str] = []
    for value in values:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _strings(value)
    return found
