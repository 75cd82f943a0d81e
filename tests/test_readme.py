"""What README shows works as it stands: its Python is run in order, against a broker of our own."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.server import RunningBroker

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
DEFAULT_PORTS = {"kafka": "9092", "pulsar": "6650", "iggy": "8090", "http": "8080"}
PRINTED = [
    [],
    ["Kafka read b'order 0'", "Kafka read b'order 1'"],
    ["Pulsar read b'order 2'", "Pulsar read b'order 3'"],
    ["Iggy read b'order 4'", "Iggy read b'order 5'"],
]
RUN_TIMEOUT_S = 60
# iggy-py 0.4.0 may abort when Python ends under its threads, after everything was done.
EXIT_CODES = (0, -signal.SIGABRT)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run(broker: RunningBroker, arguments: list[str]) -> list[str]:
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode in EXIT_CODES, f"{done.stderr}\n{broker.log_tail()}"
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.clients
def test_first_steps_print_what_they_promise():
    with RunningBroker() as broker:
        for program, printed in zip(blocks("python"), PRINTED, strict=True):
            for door, port in DEFAULT_PORTS.items():
                program = program.replace(f"127.0.0.1:{port}", broker.addresses[door])
            lines = run(broker, [sys.executable, "-c", program])
            # Pulsar's library logs to standard output, too.
            assert [line for line in lines if " read b" in line] == printed
        braidlog = [sys.executable, "-m", "broker.cli"]
        shown = run(broker, [*braidlog, "groups", "show", "1", "--url", broker.url])
        assert "1 on public/default/orders" in "\n".join(shown)
        assert broker.stop() == 0


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text()
    for name in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"`?\bmake ([a-z]+)", (ROOT / name).read_text()):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{name}: make {target}"


def test_every_page_that_is_linked_exists():
    for name in ("README.md", "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
            assert (ROOT / link).is_file(), f"{name} links to {link}"
