"""Rules for the text files of the project: words, requirements, exceptions that say why."""

import re
import tomllib
from functools import cache
from itertools import pairwise

import pytest

from tests.sources import CODE, ROOT, product

TEXT_SUFFIXES = {".py", ".pyi", ".c", ".h", ".md", ".toml", ".txt", ".proto", ".tsv", ".json"}
TEXT_SUFFIXES |= {".sh", ""}
BESIDES = ("docs", "requirements", ".ci")


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return path and text of every text file of the project."""
    tops = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")]
    for folder in (*CODE, *BESIDES):
        tops += (path for path in (ROOT / folder).rglob("*") if path.is_file())
    return tuple(
        (path.relative_to(ROOT).as_posix(), path.read_text(errors="replace"))
        for path in sorted(tops)
        if path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
    )


@pytest.mark.parametrize(
    ("fault", "pattern"),
    [
        ("a path of somebody's machine", r"(?<![\w.])/(?:work|root|home)/\w"),
        ("unfinished business", r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b"),
    ],
)
def test_no_text_holds(fault: str, pattern: str) -> None:
    match = re.compile(pattern)
    offenders = [
        f"{path}:{number} {fault}: {line.strip()[:80]}"
        for path, text in texts()
        if match.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if match.search(line)
    ]
    assert not offenders, "\n".join(offenders)


NAMED_FILE = re.compile(r"`((?:[\w-]+/)*[\w-]+\.(?:py|c|h|md))`")
# Of another project, and programs that a page has its readers save.
OTHER_FILES = {"trio/_threads.py", "copy_topics.py", "copy_pulsar_topic.py"}


def test_each_named_file_exists() -> None:
    paths = {f"/{path}" for path, _ in texts()}
    endings = {path[at:] for path in paths for at, mark in enumerate(path) if mark == "/"}
    missing = [
        f"{path}: {name}"
        for path, text in texts()
        if path != "CHANGELOG.md"
        for name in NAMED_FILE.findall(text)
        if f"/{name}" not in endings and name not in OTHER_FILES
    ]
    assert not missing, "\n".join(missing)


def test_requirements_are_pinned_with_hashes_and_name_no_address() -> None:
    offenders = []
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        text = path.read_text()
        if "://" in text or re.search(r"^\s*-(?!-hash)", text, re.MULTILINE):
            offenders.append(f"{path.name}: an address or an option")
        offenders += [
            f"{path.name}: not pinned with hashes: {block.splitlines()[0]}"
            for block in re.split(r"\n(?=\w)", text.split("\n", 1)[1])
            if "==" not in block or "--hash=sha256:" not in block
        ]
    assert not offenders, "\n".join(offenders)


def test_lock_files_of_programs_name_no_address() -> None:
    paths = sorted((ROOT / "conformance").rglob("*lock*.json"))
    assert paths
    offenders = [str(path) for path in paths if "://" in path.read_text()]
    assert not offenders, "\n".join(offenders)


def test_each_extra_has_its_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    expected = {"core", "build", *project["optional-dependencies"]}
    assert {path.stem for path in (ROOT / "requirements").glob("*.txt")} == expected


IGNORED_TYPE = re.compile(r"# type: ignore\b")
SWALLOWED = re.compile(r"except( Base| )?(Exception)?:|^\s*with suppress\(")


def test_unchecked_code_has_a_reason() -> None:
    """An ignored type and a caught `Exception` have a comment with the reason, beside or above."""
    offenders = [
        f"{source.path}:{number} {line.strip()}"
        for source in product()
        for above, (number, line) in pairwise([(0, ""), *enumerate(source.text.splitlines(), 1)])
        if IGNORED_TYPE.search(line) or SWALLOWED.search(line)
        if not above[1].strip().startswith("#") and not says_why(line)
    ]
    assert not offenders, "\n".join(offenders)


def says_why(line: str) -> bool:
    """Return True for a comment that is not only for the checkers."""
    return any(not re.match(r"(?: ?type: ignore| ?noqa)", part) for part in line.split("#")[1:])
