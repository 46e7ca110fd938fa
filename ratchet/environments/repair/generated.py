"""Functions that a grammar writes: the starter checkpoint's own practice problems, none of them of the benchmark.

Each function folds, filters, slices or compares its arguments by drawn operators and constants. Its tests are recorded
from its own answers on drawn inputs, so they hold by construction and detect whatever changes an answer.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from ratchet.environments.repair.problems import Problem

FUNCTIONS = 160
TESTS = 7
_LIST_TESTS = ("x > {k}", "x < {k}", "x % {m} == {r}", "x >= {k} and x != {j}", "x < {k} or x == {j}", "not x % {m}")
_MAPS = ("x + {k}", "x * {m}", "x - {k}", "x * x", "x // {m}", "abs(x - {k})", "max(x, {k})", "min(x, {k})")


def generated(seed: int = 7) -> Iterator[Problem]:
    """Yield `FUNCTIONS` problems; the same for the same seed."""
    rng = random.Random(seed)
    seen: set[str] = set()
    while len(seen) < FUNCTIONS:
        shape = rng.choice(_SHAPES)
        source = ast.unparse(ast.parse(_fill(shape[1], rng)))
        tests = _record(source, shape[0], rng)
        if source not in seen and len(tests) == TESTS:
            seen.add(source)
            yield Problem(name=f"practice/{len(seen)}", entry_point="practice", source=source, tests=tests)


def _fill(shape: str, rng: random.Random) -> str:
    def numbers(text: str) -> str:
        k, j, m = rng.randint(1, 6), rng.randint(0, 9), rng.randint(2, 4)
        return (
            text.replace("{k}", str(k))
            .replace("{j}", str(j))
            .replace("{m}", str(m))
            .replace("{r}", str(rng.randint(0, 1)))
        )

    while "{test}" in shape:
        shape = shape.replace("{test}", numbers(rng.choice(_LIST_TESTS)), 1)
    while "{map}" in shape:
        shape = shape.replace("{map}", numbers(rng.choice(_MAPS)), 1)
    return numbers(shape)


def _record(source: str, kind: str, rng: random.Random) -> tuple[str, ...]:
    """Run the function on drawn inputs and keep distinct answers as assertions. The code is this module's own."""
    namespace: dict[str, object] = {}
    exec(compile(source, "<generated>", "exec"), namespace)
    function = namespace["practice"]
    tests: dict[str, str] = {}
    for _ in range(60):
        argument = _argument(kind, rng)
        try:
            answer = function(*argument)  # type: ignore[operator]
        except (ValueError, IndexError, ZeroDivisionError):
            continue
        call = ", ".join(map(repr, argument))
        tests.setdefault(f"{answer!r}"[:40], f"assert candidate({call}) == {answer!r}")
    return tuple(list(tests.values())[:TESTS])


def _argument(kind: str, rng: random.Random) -> tuple[object, ...]:
    numbers = [rng.randint(-4, 12) for _ in range(rng.randint(2, 8))]
    words = "".join(rng.choice("abcAB xyz") for _ in range(rng.randint(2, 10)))
    return {
        "list": (numbers,),
        "two": (rng.randint(0, 12), rng.randint(1, 9)),
        "text": (words,),
        "list_k": (numbers, rng.randint(1, 5)),
    }[kind]


_SHAPES: tuple[tuple[str, str], ...] = (
    ("list", "def practice(xs):\n total = {k}\n for x in xs:\n  if {test}:\n   total += {map}\n return total"),
    ("list", "def practice(xs):\n out = []\n for x in xs:\n  if {test}:\n   out.append({map})\n return out"),
    ("list", "def practice(xs):\n return [{map} for x in xs if {test}]"),
    ("list", "def practice(xs):\n return sum(({map} for x in xs if {test}))"),
    ("list", "def practice(xs):\n return any(({test} for x in xs[{k}:]))"),
    ("list", "def practice(xs):\n count = 0\n for i in range(1, len(xs)):\n  x = xs[i] - xs[i - 1]\n  if {test}:\n   count += 1\n return count"),
    ("list", "def practice(xs):\n best = xs[0]\n for x in xs[1:]:\n  if {test} and x > best:\n   best = {map}\n return best"),
    ("list", "def practice(xs):\n return sorted(xs, reverse=True)[:{m}]"),
    ("list", "def practice(xs):\n return max(xs[:{m}]) - min(xs[1:])"),
    ("list_k", "def practice(xs, n):\n return [{map} for i, x in enumerate(xs) if i % n == 0 and {test}]"),
    ("list_k", "def practice(xs, n):\n out = 0\n for x in xs[:n + 1]:\n  out = out * {m} + ({map})\n return out"),
    ("list_k", "def practice(xs, n):\n return all((x >= n or {test} for x in xs))"),
    ("list_k", "def practice(xs, n):\n while len(xs) > n and {k} > 0:\n  x = xs[0]\n  xs = xs[1:] if {test} else xs[2:]\n return xs"),
    ("two", "def practice(a, b):\n total = 0\n for x in range(a, a + b + {k}):\n  if {test}:\n   total += {map}\n return total"),
    ("two", "def practice(a, b):\n x = a * {m} - b\n if {test}:\n  return a + b\n return {map}"),
    ("two", "def practice(a, b):\n x = a % b\n return (a // b + {k}, {map})"),
    ("two", "def practice(a, b):\n if a < b and b - a > {k}:\n  return 'near'\n return 'far' if a == b else 'over'"),
    ("text", "def practice(s):\n return s[{k}:] + s[:{m}].upper()"),
    ("text", "def practice(s):\n out = ''\n for i, c in enumerate(s):\n  x = i\n  if c.isupper() or {test}:\n   out += c.lower()\n return out"),
    ("text", "def practice(s):\n words = s.split(' ')\n return [w[:len(w) - 1] for w in words if len(w) > {k}]"),
    ("text", "def practice(s):\n x = len(s)\n return s.startswith('a') if {test} else s.endswith('b')"),
)  # fmt: skip
