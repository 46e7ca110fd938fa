"""Code in braces inside prose: functions of JavaScript, Java, Go, Rust, C and their like that no fence surrounds."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CONTROL = frozenset(
    {"catch", "do", "else", "finally", "for", "if", "match", "return", "switch", "try", "while", "with"}
)
_LONGEST_HEAD = 600
_FIRST_WORD = re.compile(r"[}\s]*([A-Za-z_]\w*)?")
_LONGEST = 100_000
_BRACES = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n]){0,40}\'|//[^\n]*|/\*.*?\*/|[{}]', re.DOTALL)


def heads(text: str) -> Iterator[tuple[str, int]]:
    """What stands before each brace that seems to open a function, and where the brace is."""
    at = text.find("{")
    while at >= 0:
        if head := _head(text, at):
            yield head, at
        at = text.find("{", at + 1)


def brace_blocks(text: str) -> list[str]:
    """The functions that stand in a text, each from the line of its head to its closing brace.

    A head has parentheses or an arrow before the brace and no control word in front. What is never closed is left out.
    """
    found: list[str] = []
    done = 0
    for head, brace in heads(text):
        if brace >= done and (end := _closing(text, brace)):
            found.append(text[brace - len(head) : end])
            done = end
    return found


def _head(text: str, brace: int) -> str:
    """The lines before a brace that belong to it, or nothing where it opens no function."""
    before = text[max(0, brace - _LONGEST_HEAD) : brace]
    before = before[max(before.rfind(mark) for mark in ";{}") + 1 :]
    lines = before.split("\n")
    if len(lines) > 1 and not lines[-1].strip():
        lines[-2:] = ["\n".join(lines[-2:])]
    head = lines.pop()
    while lines and head.count(")") > head.count("("):
        head = f"{lines.pop()}\n{head}"
    word = _FIRST_WORD.match(head)
    if ("(" not in head and "=>" not in head) or (word and word.group(1) in _CONTROL):
        return ""
    return head


def _closing(text: str, brace: int) -> int:
    """Where the block ends that a brace opens, past its closing brace; 0 where it does not."""
    depth = 0
    for match in _BRACES.finditer(text, brace, brace + _LONGEST):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
            if not depth:
                return match.end()
    return 0
