"""Plants for the contamination check: a held-out task dressed up at random for each layer; and honest look-alikes."""

from __future__ import annotations

import ast
import builtins
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from urllib.parse import quote

from code_samples import SAMPLES
from split_tasks import TEMPLATE, document, repair_tasks

from ratchet.contracts.environment import Task
from ratchet.splits import Document
from ratchet.splits.code import functions
from ratchet.splits.text import SHINGLE, words

SYSTEM = (
    "You are a careful engineer who works in a sandbox without network. Think before you act, call one tool at a time, "
    "and never edit the tests. When the visible tests pass, submit; you cannot change anything afterwards.\n"
)
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"{name.replace('_', ' ').capitalize()} in the working folder of the task.",
                "parameters": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
                },
            },
        }
        for name in ("read_file", "write_file", "run_tests", "submit")
    ]
)
FRAME = f"{SYSTEM}{TOOLS}\n{TEMPLATE}"
KEYWORDS = {"del", "for", "fun", "get", "let", "mut", "nan", "nil", "not", "set"}
FILLER = sorted(
    {f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"} - KEYWORDS - set(dir(builtins))
)


@cache
def framed_tasks() -> tuple[Task, ...]:
    """Real problems with bugs, each under the same system prompt, tool schemas and template, in a repo with a host."""
    found = []
    for number, one in enumerate(repair_tasks(5)):
        problem = one.repo.split("/")[1]
        repo = f"lab-{int(problem) % 7}/proj{problem}"
        payload = {**one.payload, "base_commit": f"{random.Random(problem).getrandbits(160):040x}"}
        changed = {
            "task_id": f"repair-{problem}-{number}",
            "repo": repo,
            "issue_id": f"{repo}#{100 + number}",
            "prompt": one.prompt.replace(TEMPLATE, FRAME),
            "payload": payload,
        }
        found.append(one.model_copy(update=changed))
    return tuple(found)


def grams(text: str) -> set[tuple[str, ...]]:
    tokens = words(text)
    return {tuple(tokens[at : at + SHINGLE]) for at in range(len(tokens) - SHINGLE + 1)}


def own_part(task: Task) -> str:
    """The prompt without what all tasks share."""
    return task.prompt.removeprefix(FRAME)


@cache
def template_grams() -> frozenset[tuple[str, ...]]:
    """5-grams that more than 5 % of the repos share: the lock takes them for a template and compares none of them."""
    by_repo: dict[str, set[tuple[str, ...]]] = {}
    for one in framed_tasks():
        by_repo.setdefault(one.repo, set()).update(grams(one.prompt))
    counts = Counter(gram for own in by_repo.values() for gram in own)
    return frozenset(gram for gram, count in counts.items() if count > max(5, 0.05 * len(by_repo)))


def filler(shuffler: random.Random, count: int) -> str:
    return " ".join(shuffler.choices(FILLER, k=count))


def _identifier(task: Task, shuffler: random.Random) -> Document:
    owner, name = task.repo.split("/")
    number, sha = task.issue_id.split("#")[1], task.payload["base_commit"]
    short = sha[: shuffler.randint(7, 40)]
    if short.isdigit():
        short = sha
    spelled = shuffler.choice(
        [
            f"https://github.com/{owner}/{name}",
            f"https://github.com/{owner}/{name}.git",
            f"git@github.com:{owner}/{name}.git",
            f"ssh://git@gitlab.com/{owner}/{name}.git",
            f"https://gitlab.com/{owner}/{name}/-/issues/{number}",
            f"https://gitlab.com/{owner}/{name}/-/merge_requests/{number}?tab=1",
            f"https://github.com/{owner}/{name}/issues/{number}?from=mail&x=1#issuecomment-99",
            f"https://github.com/{owner}/{name}/pull/{number}/files?w=1",
            f"https://api.github.com/repos/{owner}/{name}/issues/{number}",
            f"{owner}/{name}#{number}",
            f"{owner}/{name} GH-{number}",
            f"{owner}/{name} pull request {number}",
            f"{owner}__{name}-{number}",
            f"https://github.com/{owner}/{name}/commit/{short}",
            f"checkout {short}",
            f"pip install git+https://github.com/{owner}/{name}@{short}",
            f"[see]({owner}/{name}/issues/{number})",
            f"the task {task.task_id}",
        ]
    )
    disguise = shuffler.choice(
        [
            lambda text: text,
            str.upper,
            lambda text: quote(text, safe=""),
            lambda text: quote(quote(text, safe=""), safe=""),
            lambda text: text.replace("/", "\\/"),
            lambda text: json.dumps(text).replace("/", "\\u002f"),
            lambda text: text.replace("/", "&#x2F;"),
            lambda text: "\u200b".join(text),
            lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
            lambda text: f"({text}).",
        ]
    )
    text = disguise(spelled)
    if shuffler.random() < 0.2:
        return document(filler(shuffler, 60), identifiers=[text])
    return document(f"{filler(shuffler, 40)} {text} {filler(shuffler, 40)}")


def _exact(task: Task, shuffler: random.Random) -> Document:
    text = task.prompt
    for dress in shuffler.sample(
        [
            str.upper,
            lambda text: re.sub(r"\s", lambda _: shuffler.choice([" ", "\n", "\t", "\u00a0", "  "]), text),
            lambda text: text.replace("a", "\uff41").replace("1", "\uff11"),
            lambda text: re.sub(r"(?<=[a-z])(?=[a-z])", lambda _: shuffler.choice(["", "", "\u200b", "\u00ad"]), text),
        ],
        k=shuffler.randint(1, 4),
    ):
        text = dress(text)
    return document(text)


def _near(task: Task, shuffler: random.Random) -> Document:
    """The task's own part with words replaced until the Jaccard similarity is between 0.80 and 0.85."""
    original = own_part(task)
    tokens, expected = original.split(" "), grams(original)
    low, high = 0.80, 0.85
    for _ in range(2_000):
        own = grams(" ".join(tokens))
        similarity = len(own & expected) / len(own | expected)
        if low <= similarity <= high:
            return document(" ".join(tokens))
        if similarity < low:
            tokens = original.split(" ")
        tokens[shuffler.randrange(len(tokens))] = shuffler.choice(FILLER)
    raise AssertionError(f"no copy of {task.task_id} at the threshold")


def _contained(task: Task, shuffler: random.Random) -> Document:
    """Half of the prompt or a little more, in one piece, in a document of some 3,000 words."""
    tokens = own_part(task).split(" ")
    own = grams(task.prompt) - template_grams()
    start, length = 0, len(tokens)
    for length in range(len(tokens) // 2, len(tokens) + 1):
        start = shuffler.randrange(len(tokens) - length + 1)
        if len(own & grams(" ".join(tokens[start : start + length]))) >= 0.5 * len(own):
            break
    piece = " ".join(tokens[start : start + length])
    return document(f"{FRAME}{filler(shuffler, shuffler.randint(1, 1500))} {piece} {filler(shuffler, 1500)}")


class _Cloner(ast.NodeTransformer):
    """Renames what a function binds, splits constants, adds docstring and annotations."""

    def __init__(self, names: dict[str, str], shuffler: random.Random) -> None:
        self.names, self.shuffler = names, shuffler

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.names.get(node.arg, node.arg)
        node.annotation = ast.Name(self.shuffler.choice(["int", "object"])) if self.shuffler.random() < 0.5 else None
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.generic_visit(node)
        for one in node.args.args:
            one.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name = self.names.get(node.name, node.name)
        node.returns = None
        if isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant) and len(node.body) > 1:
            node.body = node.body[1:]
        if self.shuffler.random() < 0.5:
            node.body.insert(0, ast.Expr(ast.Constant(filler(self.shuffler, 5))))
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and 2 < node.value < 10**6 and self.shuffler.random() < 0.5:
            part = self.shuffler.randrange(1, node.value)
            return ast.BinOp(ast.Constant(node.value - part), ast.Add(), ast.Constant(part))
        return node


def largest(task: Task) -> ast.FunctionDef | None:
    """The last function of the reference that is large enough to be compared."""
    source = task.payload["reference"]
    known = {one.name for one in functions(source).found}
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name in known]
    return found[-1] if found else None


def _clone(task: Task, shuffler: random.Random) -> Document:
    function = largest(task)
    assert function is not None
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound = stored | {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    bound |= {n.name for n in ast.walk(function) if isinstance(n, ast.FunctionDef)}
    names = dict(zip(sorted(bound), shuffler.sample(FILLER, len(bound)), strict=True))
    source = ast.unparse(ast.fix_missing_locations(_Cloner(names, shuffler).visit(function)))
    place = shuffler.randrange(4)
    if place == 0:
        return document(filler(shuffler, 30), source)
    if place == 1:
        return document(f"{filler(shuffler, 30)}\n```python\n{source}\n```\n{filler(shuffler, 9)}")
    if place == 2:
        return document(f"{filler(shuffler, 30)}\n{source}\n\n{filler(shuffler, 9)}")
    return document("\n".join(f"{at:4} | {line}" for at, line in enumerate(source.splitlines(), 1)))


def other_language(name: str, shuffler: random.Random) -> Document:
    """A clone of the sample in a language, renamed at random, in a block of code, in prose or between line numbers."""
    sample = SAMPLES[name]
    source = sample.source
    fresh = [word for word in FILLER if word not in source]
    for (old, _), new in zip(sample.renames, shuffler.sample(fresh, len(sample.renames)), strict=True):
        source = re.sub(rf"\b{old}\b", new, source)
    for edit in sample.clones:
        source = source.replace(*edit) if shuffler.random() < 0.5 else source
    place = shuffler.randrange(3)
    if place == 0:
        return document(filler(shuffler, 30), source)
    if place == 1:
        return document(f"{filler(shuffler, 30)}\n```\n{source}\n```\n")
    return document(f"{filler(shuffler, 30)}\n{source}\n{filler(shuffler, 9)}")


PLANTS: dict[str, Callable[[Task, random.Random], Document]] = {
    "identifiers": _identifier,
    "exact": _exact,
    "near": _near,
    "containment": _contained,
    "ast": _clone,
}
LAYER_OF = {"containment": "near"}


def look_alike(train: Sequence[Task], number: int) -> Document:
    """An honest document: the shared frame, a training task's code, a report in the same form with words of its own."""
    shuffler = random.Random(f"honest/{number}")
    one, other = shuffler.choice(train), shuffler.choice(train)
    report = f"The assertion `{filler(shuffler, 12)}` fails for {filler(shuffler, 1)}."
    talk = f"I look at {one.repo} and at {other.repo}#{one.issue_id.split('#')[1]}{shuffler.randrange(10)}."
    code = one.payload["reference"]
    call = json.dumps({"name": "write_file", "arguments": {"path": "solution.py", "text": code}})
    return document(
        f"{FRAME}{report}\n\n```python\n{code}\n```\n{talk} {filler(shuffler, shuffler.randrange(200))}\n"
        f"{call}\nAll visible tests pass.",
        code,
        identifiers=(one.repo, one.issue_id, one.task_id),
        name=f"honest {number}",
    )
