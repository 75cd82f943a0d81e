"""Mistakes of operators: a wrong option, a port in use, an unreadable folder, a wrong token.

    .venv/bin/python -m conformance.mistakes

Makes each mistake, and prints a table with the command, its exit code and its last line. Fails if
an exit code differs, if the message does not name the mistake, or if a traceback is shown.
"""

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.ports import reserve_ports
from conformance.server import RunningBroker

SECONDS_MAX = 30
OTHERS_OFF = "--listen kafka=off --listen pulsar=off --listen iggy=off"
FILES = {
    "bad.toml": "[log\n",
    "unknown.toml": "[log]\nsegment_byts = 1\n",
    "kind.toml": '[log]\nsegment_bytes = "many"\n',
    "no-json": "no json\n",
    "array": "[1]\n",
    "empty.toml": "",
    "notes.txt": "not a data directory\n",
    "bad-schema": "no schema",
    "bad-contexts.toml": "[contexts.a\n",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A command with a mistake, its exit code, and a part of its message.

    In the command, {url} is a broker, {dead} an address where nothing listens, {busy} a port in
    use, {dir} a folder with FILES, {data} the broker's data directory, {off} OTHERS_OFF.
    """

    command: str
    code: int
    message: str


def _mistakes(text: str) -> tuple[Mistake, ...]:
    rows = (line.split(" | ") for line in text.strip().splitlines())
    return tuple(Mistake(command.strip(), int(code), part.strip()) for command, code, part in rows)


MISTAKES = _mistakes("""
nothing | 2 | unknown command 'nothing', there are:
topics nothing | 2 | unknown command 'nothing'
topics | 0 | list
topics list --bogus | 2 | --bogus
topics list --output xml | 2 | xml
topics show | 2 | topic
topics show nosuch --url {url} | 4 | nosuch
topics show a/b --url {url} | 2 | a/b
topics create t1 --partitions many --url {url} | 2 | many
topics create t1 --partitions 0 --url {url} | 2 | partitions
topics create t1 --partitions 99999999 --url {url} | 2 | partitions
topics create t1 --set nosuch=1 --url {url} | 2 | nosuch
topics create t1 --set retention_ms=soon --url {url} | 2 | soon
topics alter nosuch --set retention_ms=1d --url {url} | 4 | nosuch
topics delete nosuch --yes --url {url} | 4 | nosuch
topics list --url http://{dead} | 3 | {dead}
topics list --url {dead} | 2 | {dead}
topics list --url ftp://{dead} | 2 | ftp
topics list --url http://nosuch.invalid:8080 | 3 | nosuch.invalid
topics list --url http://127.0.0.1:99999 | 2 | 99999
topics list --url http://{notbroker} | 3 | {notbroker}
topics list --url {url}/api | 4 | no such path
topics list --token wrong --url {locked} | 2 | --token-file
topics list --token-file {dir}/no-json --url {locked} | 1 | token
topics list --url {locked} | 1 | set BRAIDLOG_TOKEN
topics list --context nosuch | 4 | nosuch
groups show nosuch --topic nosuch --url {url} | 4 | nosuch
groups show nosuch --topic mistakes --url {url} | 4 | nosuch
groups reset billing --topic mistakes --to sometime --yes --url {url} | 2 | sometime
groups delete nosuch --topic mistakes --yes --url {url} | 4 | nosuch
produce nosuch x --url {url} | 4 | nosuch
produce mistakes x --partition 9 --url {url} | 2 | partition 9
produce mistakes x --property a --url {url} | 2 | NAME=VALUE
produce mistakes --file {dir}/nosuch --url {url} | 4 | nosuch
produce mistakes --file {dir} --url {url} | 1 | directory
produce mistakes x --input xml --url {url} | 2 | xml
consume nosuch --url {url} | 4 | nosuch
consume mistakes --from someday --url {url} | 2 | someday
consume mistakes --partition 9 --url {url} | 4 | partition 9
consume mistakes --count many --url {url} | 2 | many
consume mistakes --where ( --url {url} | 2 | where
tail nosuch --url {url} | 4 | nosuch
import {dir}/nosuch mistakes --url {url} | 4 | nosuch
import {dir}/no-json mistakes --url {url} | 2 | line 1: not a JSON object
import {dir}/array mistakes --url {url} | 2 | line 1
schemas show nosuch --url {url} | 4 | nosuch
schemas put mistakes --type avro --file {dir}/bad-schema --url {url} | 2 | schema
stats --watch 0 | 2 | watch
serve --bogus | 2 | --bogus
serve --listen kafka | 2 | expected NAME=HOST:PORT
serve --listen kafka=127.0.0.1:many | 2 | many
serve --listen nosuch=127.0.0.1:0 | 2 | nosuch
serve --data-dir {dir}/new --listen http=127.0.0.1:{busy} {off} | 1 | {busy}
serve --data-dir {dir}/new --listen http=192.0.2.1:0 {off} | 2 | 192.0.2.1
serve --data-dir {dir}/new --listen http=off {off} | 2 | listener
serve --data-dir {dir} | 2 | {dir}
serve --data-dir {dir}/notes.txt | 1 | notes.txt
serve --data-dir {data} --listen http=127.0.0.1:0 | 1 | {data}
serve --data-dir /proc/nosuch --listen http=127.0.0.1:0 | 1 | /proc/nosuch
serve --config {dir}/nosuch.toml | 2 | nosuch.toml
serve --config {dir}/bad.toml | 2 | bad.toml
serve --config {dir}/unknown.toml | 2 | segment_byts
serve --config {dir}/kind.toml | 2 | log.segment_bytes
serve --set log.nosuch=1 | 2 | log.nosuch
serve --set log.segment_bytes=-1 | 2 | log.segment_bytes
log verify --data-dir {dir} | 4 | {dir}
log verify --data-dir {dir}/nosuch | 4 | nosuch
log dump --data-dir {dir}/notes.txt mistakes | 4 | notes.txt
cluster show | 2 | storage
config show --config {dir}/bad.toml | 2 | bad.toml
export nosuch --to {dir}/out --url {url} | 4 | nosuch
bench produce smoke --url {url} | 4 | smoke
users create anna --password-file {dir}/nosuch --url {url} | 2 | nosuch
permissions grant anna fly mistakes --url {url} | 2 | fly
tokens create nobody ci --url {url} | 4 | nobody
""")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The end of a command: its exit code, and all that it printed."""

    code: int
    output: str

    @property
    def last_line(self) -> str:
        """The last line of the output."""
        lines = self.output.strip().splitlines()
        return lines[-1] if lines else ""

    def fault(self, mistake: Mistake, places: dict[str, str]) -> str:
        """Return the difference from the expectation; "" if there is none."""
        if "Traceback" in self.output:
            return "a traceback"
        if self.code != mistake.code:
            return f"exit code {self.code}, expected {mistake.code}"
        wanted = mistake.message.format(**places)
        return "" if wanted.lower() in self.output.lower() else f"no {wanted!r}"


@contextlib.contextmanager
def prepared() -> Iterator[dict[str, str]]:
    """Yield the places that the commands name: brokers, ports and a folder."""
    listen = {"http": "127.0.0.1:0"}
    guarded = ("access.required=true", "access.superusers=root")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="braidlog-")))
        for name, text in FILES.items():
            (folder / name).write_text(text)
        broker = stack.enter_context(RunningBroker(listen=listen, others=False))
        locked = stack.enter_context(RunningBroker(listen=listen, others=False, settings=guarded))
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        (dead,) = reserve_ports(1, stack)
        other = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(answering(other))
        places = {
            "url": f"http://{broker.addresses['http']}",
            "locked": f"http://{locked.addresses['http']}",
            "busy": str(silent.getsockname()[1]),
            "dead": f"127.0.0.1:{dead}",
            "notbroker": f"127.0.0.1:{other.getsockname()[1]}",
            "dir": str(folder),
            "data": str(broker.data_dir),
        }
        created = run_command("topics create mistakes --url {url}", places)
        assert created.code == 0, created.output
        yield places


@contextlib.contextmanager
def answering(listening: socket.socket) -> Iterator[None]:
    """Answer each connection with bytes that are no HTTP."""

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                with listening.accept()[0] as connection:
                    connection.recv(1000)
                    connection.sendall(b"SSH-2.0-nothing\r\n")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def words_of(command: str, places: dict[str, str]) -> list[str]:
    """Return the words of a command with the places filled in."""
    words = shlex.split(command.replace("{off}", OTHERS_OFF))
    return [word.format(**places) for word in words]


def run_command(command: str, places: dict[str, str]) -> CommandResult:
    """Run a command in a process of its own."""
    words = words_of(command, places)
    environment = {**os.environ, "NO_COLOR": "1", "HOME": places["dir"]}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "braidlog.broker.cli.main", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return CommandResult(-1, "no end")
    return CommandResult(ended.returncode, (ended.stdout + ended.stderr).decode())


def main() -> None:
    """Make every mistake and print the table."""
    failures = 0
    print("| command | exit code | message |\n| --- | --- | --- |")
    with prepared() as places:
        for mistake in MISTAKES:
            result = run_command(mistake.command, places)
            line = result.last_line
            for name, place in places.items():
                line = line.replace(place, f"{{{name}}}")
            print(f"| `{mistake.command}` | {result.code} | {line} |".replace("  ", " "))
            fault = result.fault(mistake, places)
            if fault:
                failures += 1
                print(f"FAIL {mistake.command}: {fault}\n{result.output}", file=sys.stderr)
    print(f"{len(MISTAKES)} mistakes: {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
