"""The files, links, commands and names on a page exist. A move must update the pages."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError, MissingArgumentError

from braidlog.broker.cli.commands import app
from braidlog.broker.metrics import COUNTERS
from braidlog.testing import plugin
from scripts import docs
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
def test_files_on_a_page_exist(page: Path) -> None:
    text = page.read_text()
    named = {*PATH.findall(text), *(name.replace(".", "/") for name in MODULE.findall(text))}
    missing = [
        name
        for name in sorted(named)
        if not any(
            (folder / path).is_file()
            for folder in (ROOT, ROOT / "docs", page.parent)
            for path in (name, f"{name}.py", f"{name}/__main__.py")
        )
    ]
    assert not missing, missing


LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_to_an_existing_heading(page: Path) -> None:
    dead = []
    for link in LINK.findall(BLOCK.sub("", page.read_text())):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if re.match(r"[a-z]+:", link):  # Another host, which no test contacts.
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead, dead


def anchors(page: Path) -> set[str]:
    """Return GitHub's anchors of a page's headings."""
    headings = HEADING.findall(BLOCK.sub("", page.read_text()))
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_on_a_page_exist_with_their_flags(page: Path) -> None:
    wrong = []
    for words in commands(page.read_text()):
        try:
            app.parse_args(words, exit_on_error=False, print_error=False)
        except MissingArgumentError:
            pass  # In a sentence: parts that every reader knows are left out.
        except CycloptsError as error:
            wrong.append(f"{shlex.join(words)}: {error}")
    assert not wrong, "\n".join(wrong)


def commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `braidlog` in a shell block or in code marks."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shown = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    shown += re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    for line in (part for lines in shown for part in lines.split(" | ")):
        program, *words = shlex.split(line.partition(" > ")[0], comments=True) or [""]
        if program.endswith("braidlog") and "/braidlog-" not in program:
            named = {"NODE": "1", "NAME=HOST:PORT": "kafka=127.0.0.1:0"}
            yield [named.get(word, word) for word in words if word not in ("...", "…")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_metrics_on_a_page_are_served(page: Path) -> None:
    named = set(re.findall(r"\bbraidlog_[a-z_]+\b", page.read_text()))
    named -= set(vars(plugin))  # The fixtures of pytest.
    assert sorted(named - served()) == []


def served() -> set[str]:
    """Return the names in /metrics: a counter's name ends with `_total`, as in Prometheus."""
    files = ("broker/metrics.py", "protocols/http/management/log_metrics.py")
    text = "".join((ROOT / file).read_text() for file in files)
    names = set(re.findall(r'"(braidlog_[a-z_]+)"', text))
    return {f"{name}_total" if name in COUNTERS else name for name in names}


def test_names_in_the_tour_exist() -> None:
    """Look up `Class.method` in that class or its bases, other names anywhere,
    files in any folder.
    """
    files = {source.path.rsplit("/", 1)[1] for source in product()}
    parts = {node.name: members(node) for source in product() for node in source.classes}
    everything = {name for source in product() for _, name in source.defined()}
    missing = []
    for span in re.findall(r"`([^`\n]+)`", TOUR):
        if "/" in span:  # A path: the test above checks paths.
            continue
        owner, _, name = span.rpartition(".")
        if name == "py":
            is_known = span in files
        elif owner in parts:
            is_known = name in parts[owner] or any(name in parts.get(of, ()) for of in parts[owner])
        else:
            is_known = name in everything or span == "await"
        if not is_known:
            missing.append(span)
    assert not missing, missing


def members(node: ast.ClassDef) -> set[str]:
    """Return the methods of a class, and its bases."""
    methods = {
        member.name
        for member in node.body
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return methods | {ast.unparse(base) for base in node.bases}


def test_the_site_has_every_page_and_links_that_lead_to_pages() -> None:
    """`make docs` runs mkdocs, which checks each link once more."""
    places = docs.site_places()
    text = "[a](../durability.md#sync) [b](../../pyproject.toml) [c](https://example.org/)"
    moved = docs.with_links(text, "docs/tasks/from-kafka.md", places)
    assert moved == "[a](../durability.md#sync) b [c](https://example.org/)"
    front = docs.with_links("[a](docs/api.md)", "README.md", places)
    assert front == "[a](api.md)"
    listed = docs.llms_text(places)
    site = (ROOT / "mkdocs.yml").read_text()
    for page in re.findall(r"[\w/-]+\.md", site):
        assert page in places.values(), page
        assert f"]({page})" in listed, page
