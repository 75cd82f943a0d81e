"""Every name is used, and what pages say of names is true: no dead code, no page that has aged."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import ROOT, Source, product

# What a library calls by its name (Spark, trio, the logging library, Hypercorn), how many log files
# are open, which only tests ask, and a limit that follows from others and is held by a test.
CALLED_BY_OTHERS = {
    *("streamReader", "pushFilters", "prepareForTriggerAvailableNow", "getDefaultReadLimit"),
    *("initialOffset", "latestOffset", "reportLatestOffset"),
    *("after_task_step", "formatException", "spawn_app", "open_count", "LOOKED_AT_MAX"),
}
COMMAND_LINE = "broker/cli/"  # Its functions are named by their decorators.


def test_nothing_is_defined_that_the_product_does_not_use() -> None:
    used = {name for source in product() for name in names_used(source)}
    used |= set(re.findall(r"\w+", (ROOT / "pyproject.toml").read_text()))
    used |= set(re.findall(r"\w+", (ROOT / "storage/codecs/speedups.c").read_text()))
    offenders = [
        f"{source.path}:{line} {name}"
        for source in product()
        if not source.path.startswith(COMMAND_LINE)
        for line, name in names_defined(source)
        if name not in used and name not in CALLED_BY_OTHERS and not name.startswith("__")
    ]
    assert not offenders, "\n".join(offenders)


def names_used(source: Source) -> Iterator[str]:
    """Names that are read, and words of texts: fields and methods that are asked for by name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value if " " not in node.value else "")


def names_defined(source: Source) -> Iterator[tuple[int, str]]:
    """Functions and classes anywhere, and what a module sets."""
    for node in (*source.functions, *source.classes):
        yield node.lineno, node.name
    for node in source.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign):
            targets = (node.target,)
        yield from ((node.lineno, one.id) for one in targets if isinstance(one, ast.Name))


# Pages.

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
    everything = {name for source in product() for _, name in names_defined(source)}
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
