"""`conformance/README.md` lists every program."""

import re

from tests.sources import ROOT

CONFORMANCE = ROOT / "conformance"
# Programs of single clients in their own environments, which other programs start.
STARTED_BY_OTHERS = ("cases.", "clients.serve", "today.python.")


def programs():
    """Yield the name of each module that can be run, without `conformance.`."""
    for path in sorted(CONFORMANCE.rglob("*.py")):
        if re.search(r'^if __name__ == "__main__":', path.read_text(), re.MULTILINE):
            name = ".".join(path.relative_to(CONFORMANCE).with_suffix("").parts)
            if not name.startswith(STARTED_BY_OTHERS):
                yield name.removesuffix("__main__").removesuffix(".")


def test_every_program_is_listed():
    text = (CONFORMANCE / "README.md").read_text()
    names = list(programs())
    assert len(names) > 20
    missing = [
        name
        for name in names
        if f"`conformance.{name}`" not in text and f"`{name}`" not in text and name
    ]
    assert not missing, missing


def test_every_listed_program_exists():
    text = (CONFORMANCE / "README.md").read_text()
    listed = re.findall(r"^\| `conformance\.([\w.]+)`", text, re.MULTILINE)
    assert set(listed) <= set(programs())
