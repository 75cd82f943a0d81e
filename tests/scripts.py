"""Scripts of tests as data: actions, each with the state that is expected after it.

A file has scripts, separated by empty lines. The first line of a script begins with `==` and states
the rule. Each further line is an action; behind `->` are facts, separated by commas, that hold
after the action:

    == A commit below the position forgets all acknowledgements
    commit 10
    ack 12-13 -> position 10, acked 12-13
    commit 4  -> position 4, acked none

A fact is a word and its value. Lines that begin with `#` are comments.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(slots=True, frozen=True)
class Step:
    """A line of a script: the words of the action, and the expected value of each fact."""

    line: str
    action: list[str]
    facts: list[tuple[str, str]]


@dataclass(slots=True)
class Script:
    """A rule, with the steps that show it."""

    rule: str
    steps: list[Step]


def scripts(path: Path) -> Iterator[Script]:
    """Yield the scripts of a file."""
    for block in path.read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            assert lines[0].startswith("== "), f"{path}: {lines[0]!r} states no rule"
            yield Script(lines[0][3:], [step(line) for line in lines[1:]])


def step(line: str) -> Step:
    """Parse a line."""
    action, _, facts = line.partition("->")
    pairs = [fact.strip().partition(" ") for fact in facts.split(",") if fact.strip()]
    return Step(line, action.split(), [(name, value.strip()) for name, _, value in pairs])


def cases(folder: Path) -> list[object]:
    """Return a pytest parameter for each script of the folder's files: file name and script."""
    return [
        pytest.param(path.stem, script, id=f"{path.stem}: {script.rule}")
        for path in sorted(folder.glob("*.txt"))
        for script in scripts(path)
    ]
