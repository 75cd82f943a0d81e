"""Files and names that a page names are there: what moves takes its pages along."""

import ast
import re
from pathlib import Path

import pytest

from tests.sources import ROOT, product

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "storage/FORMAT.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PATH = re.compile(
    r"(?<![\w/.-])(?:broker|conformance|docs|protocols|scripts|storage|tests)/[\w/.-]+\.(?:c|md|py)\b"
)
MODULE = re.compile(r"-m (conformance[\w.]*)")
TOUR = (ROOT / "docs" / "tour.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    named = {*PATH.findall(text), *(name.replace(".", "/") for name in MODULE.findall(text))}
    missing = [
        name
        for name in sorted(named)
        if not any(
            (folder / path).is_file()
            for folder in (ROOT, page.parent)
            for path in (name, f"{name}.py", f"{name}/__main__.py")
        )
    ]
    assert not missing, missing


def test_names_that_the_tour_names_are_there() -> None:
    """`Class.method` in that class or a base of it, other names anywhere, files in some folder."""
    files = {source.path.rsplit("/", 1)[1] for source in product()}
    parts = {node.name: members(node) for source in product() for node in source.classes}
    everything = {name for source in product() for _, name in source.defined()}
    missing = []
    for span in re.findall(r"`([^`\n]+)`", TOUR):
        if "/" in span:  # A path, which the test above looks for.
            continue
        owner, _, name = span.rpartition(".")
        if name == "py":
            found = span in files
        elif owner in parts:
            found = name in parts[owner] or any(name in parts.get(of, ()) for of in parts[owner])
        else:
            found = name in everything or span == "await"
        if not found:
            missing.append(span)
    assert not missing, missing


def members(node: ast.ClassDef) -> set[str]:
    """Methods of a class, and its bases."""
    methods = {
        one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return methods | {ast.unparse(base) for base in node.bases}
