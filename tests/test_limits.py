"""docs/limits.md names every limit that the code has: a constant that ends in MAX."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ("broker", "protocols", "storage")
NAME = re.compile(r"_MAX(_[A-Z]+)?$")
# The largest value of a type or of a format, or what programs of their own (command line, Spark's
# workers, tools) put into one table, file or request: nothing that a client of a broker meets.
NO_LIMITS = re.compile(
    r"^_|TIME_MS_MAX|TIME_US_MAX|TIME_MAX_US|INT32_MAX|INT64_MAX|UINT32_MAX|UINT64_MAX|NUMBER_MAX"
    r"|OFFSET_MAX|DELTA_MAX|VARINT_BYTES_MAX|VARLONG_BYTES_MAX|TAG_BYTES_MAX|SUM_MAX|DIGITS_MAX|SEQUENCE_MAX|^RECORDS_MAX|^BYTES_MAX"
)
PROGRAMS = ("broker/cli", "storage/spark", "storage/tools")


def limits() -> Iterator[tuple[str, str]]:
    """(file, name) of each."""
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            if file.startswith(PROGRAMS) or "/pb/" in file:
                continue
            for node in ast.parse(path.read_text()).body:
                target = node.targets[0] if isinstance(node, ast.Assign) else None
                target = node.target if isinstance(node, ast.AnnAssign) else target
                if not isinstance(target, ast.Name) or NO_LIMITS.search(target.id):
                    continue
                if NAME.search(target.id):
                    yield file, target.id


@pytest.fixture(scope="module")
def named() -> set[str]:
    """Every word in code marks."""
    text = (ROOT / "docs" / "limits.md").read_text()
    return {word for span in re.findall(r"`([^`]*)`", text) for word in re.findall(r"\w+", span)}


def test_every_limit_has_a_row(named: set[str]) -> None:
    missing = [f"{file}: {name}" for file, name in limits() if name not in named]
    assert not missing, "\n".join(missing)
