"""The Python files of the house, read and parsed once for the tests of its rules."""

import ast
import gc
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("storage", "broker", "protocols")
CODE = (*PRODUCT, "scripts", "tests", "conformance")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Source:
    """One Python file of the house; its tree is walked once."""

    path: str
    text: str
    tree: ast.Module
    imports: list[tuple[int, str]] = field(default_factory=list)  # Line, dotted name; anywhere.
    functions: list[Function] = field(default_factory=list)  # Methods and nested ones too.
    classes: list[ast.ClassDef] = field(default_factory=list)
    attributes: list[ast.Attribute] = field(default_factory=list)
    used: set[str] = field(default_factory=set)  # Names read, and texts, which name fields.

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                self.attributes.append(node)
                if isinstance(node.ctx, ast.Load):
                    self.used.add(node.attr)
            elif isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    self.used.add(node.id)
            elif isinstance(node, ast.Constant):
                if isinstance(node.value, str) and " " not in node.value:
                    self.used.update(re.findall(r"\w+", node.value))
            elif isinstance(node, Function):
                self.functions.append(node)
            elif isinstance(node, ast.Import):
                self.imports += ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                self.imports += ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.ClassDef):
                self.classes.append(node)

    @property
    def package(self) -> str:
        return self.path.split("/")[0]

    def defined(self) -> Iterator[tuple[int, str]]:
        """Line and name of functions and classes anywhere, and of what the module sets."""
        for node in (*self.functions, *self.classes):
            yield node.lineno, node.name
        for node in self.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            yield from ((node.lineno, one.id) for one in targets if isinstance(one, ast.Name))

    def _base(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        folder = self.path.split("/")[: -node.level]
        return ".".join([*folder, *([node.module] if node.module else [])])


@cache
def sources() -> tuple[Source, ...]:
    """All Python files written by hand."""
    gc.disable()  # Looking for garbage among so many nodes takes longer than to make them.
    try:
        found = tuple(
            Source(path.relative_to(ROOT).as_posix(), text := path.read_text(), ast.parse(text))
            for folder in CODE
            for path in sorted((ROOT / folder).rglob("*.py"))
            if not path.name.endswith("_pb2.py")
        )
        gc.freeze()  # They stay: a search in a test that comes later would walk them all.
        return found
    finally:
        gc.enable()


def product() -> Iterator[Source]:
    return (source for source in sources() if source.package in PRODUCT)
