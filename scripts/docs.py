"""Build the documentation as a site into site/, with search and llms.txt.

The pages of docs/ stay readable where they are. This program copies them and the pages beside them
(README and others) into one folder, changes the links between them accordingly, and runs mkdocs,
which fails for a link that leads nowhere. `make docs` runs this program in its own environment.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "docs"
# Pages outside docs/, by their place in the site.
OTHERS = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "storage/FORMAT.md": "FORMAT.md",
    "conformance/README.md": "conformance-programs.md",
    "docs/README.md": "all-pages.md",
}
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
ABOUT = """# Braidlog

> A message broker in Python: clients of Kafka 0.8 and today's Kafka, Apache Pulsar, Apache Iggy and
> plain HTTP share one partitioned log and one store of positions. A record that one protocol writes
> is read by any other, and a group's position carries over between protocols.

"""


def main() -> int:
    """Write the site; return the exit code of mkdocs."""
    shutil.rmtree(PAGES, ignore_errors=True)
    places = site_places()
    for source, place in places.items():
        target = PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            target.write_text(with_links((ROOT / source).read_text(), source, places))
        else:
            shutil.copyfile(ROOT / source, target)
    (PAGES / "llms.txt").write_text(llms_text(places))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def site_places() -> dict[str, str]:
    """Return the place in the site of each page and file, by path in the repository."""
    docs = {
        path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
        for path in sorted((ROOT / "docs").rglob("*"))
        if path.is_file()
    }
    return docs | OTHERS


def with_links(text: str, source: str, places: dict[str, str]) -> str:
    """Return a page whose links lead to the places in the site. A link to a file that is not in the
    site becomes plain text.
    """
    folder = PurePosixPath(source).parent.as_posix()
    here = PurePosixPath(places[source]).parent.as_posix()

    def place(match: re.Match[str]) -> str:
        text, path, heading = match.groups(default="")
        target = normpath(f"{folder}/{path}")
        return f"[{text}]({relpath(places[target], here)}{heading})" if target in places else text

    return LINK.sub(place, text)


def llms_text(places: dict[str, str]) -> str:
    """Return the list of pages for language models (llmstxt.org)."""
    lines = []
    for source, page in places.items():
        if page.endswith(".md") and not page.startswith("reports/"):
            title = (ROOT / source).read_text().partition("\n")[0].removeprefix("# ")
            lines.append(f"- [{title}]({page})")
    return f"{ABOUT}## Pages\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
