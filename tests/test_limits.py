"""docs/limits.md names every limit of the code, a constant that ends in MAX, with its value."""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ("broker", "protocols", "storage")
NAME = re.compile(r"_MAX(_[A-Z]+)?$")
# Not limits for a broker's clients: the largest value of a type or format, and the sizes of tables,
# files and requests of separate programs (command line, Spark's workers, tools).
NO_LIMITS = re.compile(
    r"^_|_POS$|^INT_MAX|TIME_MS_MAX|TIME_US_MAX|TIME_MAX_US|INT32_MAX|INT64_MAX|U(?:INT)?32_MAX|U(?:INT)?64_MAX|NUMBER_MAX"
    r"|OFFSET_MAX|DELTA_MAX|VARINT_BYTES_MAX|VARLONG_BYTES_MAX|TAG_BYTES_MAX|SUM_MAX|DIGITS_MAX|SEQUENCE_MAX|^RECORDS_MAX|^BYTES_MAX"
)
OF_SPARK = re.compile(r"/pb/|columns(\.py|/)")  # Decoders to Arrow, in Spark's workers.
PROGRAMS = ("broker/cli", "storage/export", "storage/tools")


def modules() -> Iterator[tuple[str, set[str]]]:
    """Yield each file of the product with the names that it sets."""
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            tree = ast.parse(path.read_text())
            yield (
                path.relative_to(ROOT).as_posix(),
                {name for node in tree.body for name in names_set(node)},
            )


def limits() -> Iterator[tuple[str, str]]:
    """Yield (file, name) of each limit."""
    for file, names in modules():
        if not file.startswith(PROGRAMS) and not OF_SPARK.search(file):
            for name in sorted(names):
                if NAME.search(name) and not NO_LIMITS.search(name):
                    yield file, name


def names_set(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement sets."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    for target in targets:
        yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


@pytest.fixture(scope="module")
def named() -> set[str]:
    """Return every word in code marks."""
    text = (ROOT / "docs" / "limits.md").read_text()
    return {word for span in re.findall(r"`([^`]*)`", text) for word in re.findall(r"\w+", span)}


def test_every_limit_has_a_row(named: set[str]) -> None:
    missing = [f"{file}: {name}" for file, name in limits() if name not in named]
    assert not missing, "\n".join(missing)


PAGE = ROOT / "docs" / "limits.md"
UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "s": 1, "ms": 0.001, "min": 60, "h": 3600}
NUMBER = re.compile(rf"(\d+(?:,\d{{3}})*(?:\.\d+)?)(?:\^(\d+))?(?: ({'|'.join(UNITS)})\b)?")


def rows() -> Iterator[tuple[list[str], set[float]]]:
    """Yield the constants of each row, and the row's values.

    Times are in seconds and milliseconds, since a name ends in its unit.
    """
    for line in PAGE.read_text().splitlines():
        cells = line.split(" | ")
        if names := re.findall(r"`([A-Z][A-Z0-9_]+)`", cells[0]):
            yield names, {value for number in NUMBER.findall(cells[1]) for value in values(*number)}


def values(digits: str, power: str, unit: str) -> Iterator[float]:
    number = float(digits.replace(",", "")) ** int(power or 1)
    yield number
    yield number * UNITS.get(unit, 1)
    yield number * UNITS.get(unit, 1) * 1000


@pytest.fixture(scope="module")
def constants() -> dict[str, set[float]]:
    """Return the numbers of the product's constants with a name on the page."""
    values: dict[str, set[float]] = defaultdict(set)
    wanted = {name for names, _ in rows() for name in names}
    for file, names in modules():
        for name in wanted & names:
            module = importlib.import_module(
                "braidlog." + file.removesuffix(".py").replace("/", ".")
            )
            value = getattr(module, name)
            if isinstance(value, int | float):
                values[name].add(value)
    return values


def test_every_row_shows_an_existing_limit(constants: dict[str, set[float]]) -> None:
    wrong = [
        f"{name}: {sorted(constants.get(name, ()))} in the code, {sorted(shown)} on the page"
        for names, shown in rows()
        for name in names
        if not any(abs(stated - two) < 1e-9 for stated in constants.get(name, ()) for two in shown)
    ]
    assert not wrong, "\n".join(wrong)
