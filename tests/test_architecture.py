"""The rules of the layout, read off the syntax trees: who imports whom, who opens which door, how long a file is."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = ("ratchet", "resources", "assets", "pipelines")
MAY_IMPORT = {
    "ratchet": {"ratchet"},
    "resources": {"resources", "ratchet"},
    "assets": {"assets", "resources", "ratchet"},
    "pipelines": {"pipelines", "assets", "resources", "ratchet"},
}
FRAMEWORKS = {"dagster", "mlflow", "great_expectations"}
STAGES = (
    "contracts", "rights", "intake", "splits", "rewards", "sandbox", "environments", "policies", "rollouts", "methods",
    "evaluation", "release", "serving", "loop", "cli",
)  # fmt: skip
FOUNDATION = {"children", "deadline", "errors", "progress", "pyast", "store"}
"""Modules beside the stages, on which every stage may rest."""
MAX_LINES = 400


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def files(*packages: str) -> list[Path]:
    found = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    assert found
    return found


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything that a file imports, inside functions too."""
    package = module_of(path).split(".") if path.name == "__init__.py" else module_of(path).split(".")[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


@pytest.mark.parametrize("package", OURS)
def test_packages_import_only_what_is_below_them(package: str) -> None:
    wrong = [
        f"{place(path, line)} imports {name}"
        for path in files(package)
        for line, name in imports(path)
        if name.split(".")[0] in OURS and name.split(".")[0] not in MAY_IMPORT[package]
    ]
    assert wrong == []


def test_the_domain_imports_no_framework() -> None:
    wrong = [
        f"{place(path, line)} imports {name}"
        for path in files("ratchet")
        for line, name in imports(path)
        if name.split(".")[0].startswith("dagster") or name.split(".")[0] in FRAMEWORKS
    ]
    assert wrong == []


def test_a_stage_imports_only_earlier_stages() -> None:
    wrong = []
    for path in files("ratchet"):
        parts = module_of(path).split(".")
        if len(parts) < 2 or parts[1] not in STAGES:
            continue
        for line, name in imports(path):
            other = name.split(".")
            staged = other[0] == "ratchet" and len(other) > 1 and other[1] in STAGES
            if staged and STAGES.index(other[1]) > STAGES.index(parts[1]):
                wrong.append(f"{place(path, line)}: {parts[1]} imports the later {name}")
    assert wrong == []


def test_the_foundation_rests_on_the_contracts_alone() -> None:
    wrong = [
        f"{place(path, line)} imports {name}"
        for path in files("ratchet")
        if module_of(path).split(".")[1:2] and module_of(path).split(".")[1] in FOUNDATION
        for line, name in imports(path)
        if name.split(".")[0] == "ratchet" and name.split(".")[1] not in {"contracts", *FOUNDATION}
    ]
    assert wrong == []


def test_every_package_of_the_domain_is_a_known_stage() -> None:
    packages = {path.parent.name for path in (ROOT / "ratchet").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "ratchet").glob("*.py")} - {"__init__"}
    assert packages <= set(STAGES) | FOUNDATION
    assert modules <= FOUNDATION


def evidence_owners() -> dict[str, str]:
    """Name of every evidence type and the package that owns it."""
    owners = {}
    for path in files("ratchet"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                for keyword in node.keywords:
                    if keyword.arg == "owner" and isinstance(keyword.value, ast.Constant):
                        owners[node.name] = str(keyword.value.value)
    return owners


def test_every_evidence_type_names_an_owner_that_holds_it() -> None:
    owners = evidence_owners()
    named = {"AuthorisedDataset", "SplitLock", "ContaminationCertificate", "Scorecard", "Decision", "RewardAudit"}
    assert named <= owners.keys()
    for path in files("ratchet"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and node.name in owners:
                assert module_of(path).startswith(owners[node.name]), place(path, node.lineno)


def doors(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, type and method of every call that makes or reopens evidence."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and node.attr in ("issue", "reopen") and isinstance(node.value, ast.Name):
            yield node.lineno, node.value.id, node.attr


def test_evidence_is_made_and_reopened_only_by_its_owner() -> None:
    owners = evidence_owners()
    wrong, opened = [], set()
    for path in files(*OURS):
        for line, kind, method in doors(path):
            if kind in owners:
                opened.add(kind)
                if not f"{module_of(path)}.".startswith(f"{owners[kind]}."):
                    wrong.append(f"{place(path, line)} calls {kind}.{method}, which {owners[kind]} owns")
    assert wrong == []
    assert {"SplitLock", "Decision"} <= opened


def test_nobody_looks_behind_the_doors() -> None:
    """The context variable that lets evidence be made is used where it is defined, and nowhere else."""
    wrong = [
        place(path, node.lineno)
        for path in files(*OURS)
        if module_of(path) != "ratchet.contracts.evidence"
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Name) and node.id == "_issuing")
        or (isinstance(node, ast.Attribute) and node.attr in ("_issuing", "model_construct"))
    ]
    assert wrong == []


def test_only_the_domain_is_installed() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert found["setuptools"]["packages"]["find"]["include"] == ["ratchet*"]
    # Either of the two would silently override workspace.yaml.
    assert not {"dg", "dagster"} & found.keys()


@pytest.mark.parametrize("package", [*OURS, "tests"])
def test_no_file_is_longer_than_a_person_reads(package: str) -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files(package)}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_LINES} == {}


def public(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Public functions, classes and methods; members of a protocol say what they are by their type."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not child.name.startswith("_"):
            yield child
            if isinstance(child, ast.ClassDef) and not any("Protocol" in ast.unparse(base) for base in child.bases):
                yield from public(child)


@pytest.mark.parametrize("package", OURS)
def test_every_public_name_has_a_docstring(package: str) -> None:
    missing = []
    for path in files(package):
        if ast.get_docstring(tree(path)) is None:
            missing.append(place(path, 1))
        missing += [
            f"{place(path, node.lineno)} {node.name}" for node in public(tree(path)) if not ast.get_docstring(node)
        ]
    assert missing == []
