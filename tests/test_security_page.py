"""The commands of docs/security.md work: they run in order, on other ports."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.ports import reserve_ports
from conformance.server import START_TIMEOUT_S

PAGE = Path(__file__).resolve().parent.parent / "docs" / "security.md"
SECTION = "## From nothing to a broker on a network"
RUN_TIMEOUT_S = 120

pytestmark = [pytest.mark.slow, pytest.mark.clients]


def blocks() -> list[tuple[str, str]]:
    """Return (language, text) of every block of the first section, in order."""
    section = PAGE.read_text().partition(SECTION)[2].partition("\n## ")[0]
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


class Shell:
    """A reader's terminal: exported variables stay."""

    def __init__(self, folder: Path, ports: dict[str, str]) -> None:
        self.folder = folder
        self.ports = ports
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path}
        self.broker: subprocess.Popen[bytes] | None = None

    def here(self, text: str) -> str:
        """Return the text with this test's ports."""
        for shown, free in self.ports.items():
            text = text.replace(shown, free)
        return text

    def run(self, text: str) -> str:
        """Run commands as a shell does; return their output."""
        if text.startswith("braidlog serve"):
            self.broker = subprocess.Popen(
                text.split(), cwd=self.folder, env=self.environment, stderr=subprocess.DEVNULL
            )
            return ""
        environment = self.folder / "environment"
        done = subprocess.run(
            ["sh", "-eu", "-c", f"{text}\nenv -0 > {environment}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        pairs = (part.partition("=") for part in environment.read_text().split("\0") if part)
        self.environment = {name: value for name, _, value in pairs}
        return done.stdout

    def wait(self) -> None:
        """Wait until the broker accepts."""
        deadline = time.monotonic() + START_TIMEOUT_S
        assert self.broker is not None
        while self.broker.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", int(self.ports["8443"]))).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise AssertionError("the broker did not start")


@pytest.fixture
def ports() -> Iterator[list[int]]:
    with ExitStack() as held:
        yield reserve_ports(2, held)


def test_the_first_section_starts_a_broker_that_a_client_can_use(tmp_path, ports):
    for tool in ("openssl", "curl"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here")
    shell = Shell(tmp_path, dict(zip(("8443", "6651"), map(str, ports), strict=True)))
    printed = []
    try:
        for language, shown in blocks():
            text = shell.here(shown)
            if language == "toml":
                (tmp_path / "braidlog.toml").write_text(text)
            elif language == "python":
                (tmp_path / "first.py").write_text(text)
                printed.append(shell.run("python first.py"))
            else:
                printed.append(shell.run(text))
                if shell.broker is not None:
                    shell.wait()
    finally:
        if shell.broker is not None:
            shell.broker.kill()
            shell.broker.wait()
    assert "hello" in printed[-2], printed
    assert "public/default/letters" in printed[-1], printed
