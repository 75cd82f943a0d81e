"""What README shows works as it stands: its Python and its commands are run in order, against a
broker of our own.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

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
RUN_TIMEOUT_S = 300
# iggy-py 0.4.0 may abort when Python ends under its threads, after everything was done.
EXIT_CODES = (0, -signal.SIGABRT)


def steps() -> list[tuple[str, str]]:
    """(language, text) of every block, in order."""
    return re.findall(r"^```(python|sh)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def ask(broker: RunningBroker, arguments: list[str]) -> bytes:
    """What curl does, with the options that README uses."""
    data = None
    if arguments[0] == "--json":
        _, text, *arguments = arguments
        data = text.encode()
    (url,) = arguments
    headers = {"Content-Type": "application/json"} if data is not None else {}
    with urlopen(Request(here(broker, url), data, headers)) as answer:
        assert answer.status == 200
        return answer.read()


def here(broker: RunningBroker, text: str) -> str:
    """With the broker's addresses and data directory in the place of the default ones."""
    for listener, port in DEFAULT_PORTS.items():
        text = text.replace(f"127.0.0.1:{port}", broker.addresses[listener])
    return str(broker.data_dir) if text == "data" else text


def run(broker: RunningBroker, arguments: list[str]) -> list[str]:
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"BRAIDLOG_URL": broker.url},
        cwd=broker.data_dir.parent,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode in EXIT_CODES, f"{done.stderr}\n{broker.log_tail()}"
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.clients
@pytest.mark.spark
def test_first_steps_print_what_they_promise():
    printed = iter(PRINTED)
    shown: dict[str, list[str]] = {}
    asked: list[bytes] = []
    with RunningBroker() as broker:
        for language, text in steps():
            if language == "python":
                lines = run(broker, [sys.executable, "-c", here(broker, text)])
                # Pulsar's library logs to standard output, too.
                assert [line for line in lines if " read b" in line] == next(printed)
                continue
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                if program == ".venv/bin/braidlog":
                    command = [here(broker, argument) for argument in arguments]
                    program = [sys.executable, "-m", "braidlog.broker.cli.main"]
                    shown[command[0]] = run(broker, [*program, *command])
                elif program == "curl":
                    asked.append(ask(broker, arguments))
        assert not list(printed)
        assert shown["export"][0].startswith("7 records")
        assert "public/default/orders" in "\n".join(shown["topics"])
        assert "1 on public/default/orders" in "\n".join(shown["groups"])
        assert b'"messageId":"CAEQBg=="' in asked[0]
        assert b'"value":"order 6"' in asked[1]
        assert b'"mark_delete":"CAEQBg=="' in asked[2]
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
