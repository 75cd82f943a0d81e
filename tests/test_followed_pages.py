"""The instructions of README and the pages in docs/ work.

Every shell and Python block runs in order, each page on a fresh broker. A block runs in another
test, or has an entry in `NOT_RUN` with a reason. Other fences (`text`, `ini`, `toml`) are not run.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from braidlog.broker.config.settings import load
from conformance.server import RunningBroker

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
RUN_TIMEOUT_S = 300
DEFAULT_PORTS = {"kafka": "9092", "pulsar": "6650", "iggy": "8090", "http": "8080"}
# iggy-py 0.4.0 may abort when Python ends under its threads, after all work was done.
PYTHON_EXIT_CODES = (0, -signal.SIGABRT)
CURL_TIMED_OUT = 28  # The status of an endless stream that `--max-time` ends.

# The test that runs the blocks of a page, by page and language.
RUN_BY = {
    ("docs/security.md", "sh"): "tests/test_security_page.py",
    ("docs/security.md", "python"): "tests/test_security_page.py",
    ("docs/spark.md", "python"): "tests/storage/export/test_docs.py",
    ("docs/tasks/from-kafka.md", "python"): "tests/test_moving_pages.py",
    ("docs/tasks/from-pulsar.md", "python"): "tests/test_moving_pages.py",
}
# Beginnings of blocks that cannot run here, and the reason.
NOT_RUN = {
    "make run": "takes the default ports and does not end",
    "braidlog cluster init": "needs PostgreSQL and an S3 store; tests/cluster has both",
    "python3 -m venv /opt/braidlog": "writes to /opt",
    "pipx run": "needs the package index",
    "braidlog serve --data-dir data --listen zookeeper": "needs the scripts of Kafka 0.8",
    "braidlog serve --data-dir data --listen iggy-": "a second broker; tests/clients has it",
    "braidlog serve --ephemeral": "does not end; tests/testing/test_serving.py runs it",
    "useradd": "needs root",
    "import base64, json, websocket": "needs websocket-client; conformance.websocket talks so",
    "systemctl": "needs systemd",
    "python -m braidlog.storage.export.export": "needs a Spark cluster",
}
# Commands before a page's first block: the state that the page assumes.
PREPARED = {
    "docs/operations.md": "braidlog topics create orders; braidlog topics create old-orders",
    "docs/spark.md": "braidlog topics create orders",
}
NEEDS_A_STOPPED_BROKER = "braidlog log repair"


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return (language, text) of a page's blocks, also of those inside lists."""
    return [(language, dedent(text)) for _, language, text in BLOCK.findall(page.read_text())]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runnable(page: Path) -> list[tuple[str, str]]:
    """Return (language, text) of a page's blocks that this file runs, in order."""
    return [
        (language, text)
        for language, text in blocks(page)
        if language in ("sh", "python")
        and (name_of(page), language) not in RUN_BY
        and not text.startswith(tuple(NOT_RUN))
    ]


class Terminal:
    """A reader's shell beside a broker: variables stay from block to block."""

    def __init__(self, broker: RunningBroker) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = os.environ | {"PATH": path, "BRAIDLOG_URL": broker.url}
        self._environment |= {"PYSPARK_PYTHON": sys.executable}
        self._broker = broker

    def run(self, language: str, text: str) -> str:
        """Run a block; return the standard output."""
        for listener, port in DEFAULT_PORTS.items():
            text = text.replace(f"127.0.0.1:{port}", self._broker.addresses[listener])
        if language == "python":
            done = self._ran([sys.executable, "-c", text])
            assert done.returncode in PYTHON_EXIT_CODES, f"{text}\n{done.stderr}"
            return done.stdout
        text = re.sub(r"\bcurl ", "curl --silent --show-error --fail ", text)
        text = text.replace(".venv/bin/", "")
        saved = self._broker.folder / "environment"
        script = f"set -eua\n{text}\nenv -0 > '{saved}'"
        done = self._ran(["sh", "-c", script])
        streams = "--max-time" in text
        assert done.returncode == (CURL_TIMED_OUT if streams else 0), f"{text}\n{done.stderr}"
        if not streams:
            pairs = (pair.partition("=") for pair in saved.read_text().split("\0") if pair)
            self._environment = {name: value for name, _, value in pairs}
        return done.stdout

    def _ran(self, command: list[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=self._environment,
            cwd=self._broker.folder,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )


def follow(page: Path) -> list[str]:
    """Run a page's blocks on a fresh broker; return the output of each."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    printed = []
    with RunningBroker() as broker:
        terminal = Terminal(broker)
        # No page may assume that it creates the first topic: message ids depend on that.
        terminal.run("sh", "braidlog topics create somebody-elses --partitions 2")
        terminal.run("sh", PREPARED.get(name_of(page), ""))
        for language, text in runnable(page):
            if text.startswith(NEEDS_A_STOPPED_BROKER):
                assert broker.stop() == 0
            printed.append(terminal.run(language, text))
    return printed


FOLLOWED = [page for page in PAGES if runnable(page)]
MARKS = {
    "README.md": (pytest.mark.clients, pytest.mark.spark),
    "docs/spark.md": (pytest.mark.spark,),
    "docs/tasks/delays.md": (pytest.mark.clients,),
    "docs/testing.md": (pytest.mark.clients,),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=name_of(p), marks=MARKS.get(name_of(p), ())) for p in FOLLOWED],
)
def test_the_blocks_of_a_page_run_in_order(page):
    printed = follow(page)
    if check := CHECKS.get(name_of(page)):
        check(printed)


def check_readme(printed: list[str]) -> None:
    lines = [line for text in printed for line in text.splitlines() if " read b" in line]
    readers = ("Kafka", "Kafka", "Pulsar", "Pulsar", "Iggy", "Iggy")
    assert lines == [f"{reader} read b'order {n}'" for n, reader in enumerate(readers)]
    shell = printed[4:]
    assert '"value":"order 6"' in shell[0]
    assert '"backlog":0' in shell[0].splitlines()[-1]  # The cursor: order 6 is acknowledged.
    assert shell[1].startswith("7 records")
    assert "public/default/orders" in shell[2]
    assert "1 on public/default/orders" in shell[2]


def check_api(printed: list[str]) -> None:
    assert '"value":"hello"' in printed[0]
    assert '"value":"hello"' in printed[1]
    assert "data: " in printed[2]


def check_operations(printed: list[str]) -> None:
    assert any("braidlog_append_seconds" in text for text in printed)


def check_delays(printed: list[str]) -> None:
    *answers, letter = printed[2].splitlines()
    assert letter == "broken from persistent://public/default/payments"
    assert sorted(answers) == [
        "broken ACCEPT in time",
        "broken ACCEPT in time",
        "broken REJECT in time",
        "busy ACCEPT in time",
        "busy RELEASE in time",
        "payment ACCEPT in time",
        "reminder ACCEPT in time",
    ]
    (letter,) = printed[3].splitlines()
    assert '"value":"broken"' in letter and "ORIGIN_MESSAGE_ID" in letter


CHECKS = {
    "docs/tasks/delays.md": check_delays,
    "README.md": check_readme,
    "docs/api.md": check_api,
    "docs/operations.md": check_operations,
}


def test_every_entry_of_the_lists_is_used():
    texts = [text for page in PAGES for _, text in blocks(page)]
    for beginning in (*NOT_RUN, NEEDS_A_STOPPED_BROKER):
        assert any(text.startswith(beginning) for text in texts), beginning
    for (page, _), test in RUN_BY.items():
        assert Path(page).name in (ROOT / test).read_text(), test


def test_configuration_of_operations_page_is_valid(tmp_path):
    page = ROOT / "docs/operations.md"
    (text,) = [text for language, text in blocks(page) if language == "toml"]
    (tmp_path / "braidlog.toml").write_text(text)
    config = load(file=str(tmp_path / "braidlog.toml"), environment={})
    assert str(config.data_dir) == "/var/lib/braidlog"


def test_index_links_every_page():
    index = (ROOT / "docs/README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        link = str(page.relative_to(ROOT / "docs"))
        assert link == "README.md" or link.startswith("reports/") or f"]({link})" in index, link
