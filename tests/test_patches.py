"""Tests hand in limits and fakes, and patch our own code as little as possible."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PATCHES_MAX = 66  # Only lower this: a test hands a fake in.
# A constant that a test patches, with its module as a name or within the text.
PATCHED_CONSTANT = re.compile(r'\bsetattr\(\s*(?:"[\w.]*\.|\w+,\s*")([A-Z][A-Z0-9_]+)"')
# The extension in C, absent for a test; and the class of the C library.
PATCHED = {"SPEEDUPS", "CDLL"}


def patches() -> Iterator[tuple[Path, str]]:
    """Yield each test file with its text."""
    for folder in ("tests", "conformance"):
        yield from ((path, path.read_text()) for path in (ROOT / folder).rglob("*.py"))


def test_patches_become_no_more() -> None:
    assert sum(len(re.findall(r"\bmonkeypatch\.setattr\(", text)) for _, text in patches()) <= (
        PATCHES_MAX
    )


def test_no_constant_is_patched() -> None:
    """Limits are values that a test hands in (`broker/delivery/limits.py`)."""
    patched = [(path, name) for path, text in patches() for name in PATCHED_CONSTANT.findall(text)]
    assert {name for _, name in patched} >= {"SPEEDUPS"}, "the expression finds patches"
    offenders = [f"{path}: {name}" for path, name in patched if name not in PATCHED]
    assert not offenders, "\n".join(offenders)
