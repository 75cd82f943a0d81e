"""The make targets and pages in README exist. `test_followed_pages.py` runs its blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_make_target_in_readme_exists():
    makefile = (ROOT / "Makefile").read_text()
    for name in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"`?\bmake ([a-z][a-z-]*)", (ROOT / name).read_text()):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{name}: make {target}"


def test_every_linked_page_exists():
    for name in ("README.md", "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
            assert (ROOT / link).is_file(), f"{name} links to {link}"
