"""Strangers at a broker with authentication: no frame reaches more than the login.

`python -m conformance.hostile.strangers --frames 200000` sends mutated handshakes of each family of
mechanisms, with cheap hashes and without the slow-down of failed logins. Then follow every command
of every protocol before a login, and thousands of wrong passwords with the default hashes and
slow-down. The exit code is 1 at the first finding.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import trustme

from conformance.bench.process import cpu_seconds
from conformance.clients.raw.iggy import LOGIN, text8
from conformance.clients.raw.iggy import frame as iggy_frame
from conformance.clients.raw.wire import Wire
from conformance.hostile import rows_login
from conformance.hostile.attack import AttackResult, attack
from conformance.hostile.commands import OPTIONAL, protocols
from conformance.hostile.judge import check_log, log_size, open_files
from conformance.hostile.rows import ConnectionKind, Protocol
from conformance.server import RunningBroker

MIB = 1 << 20
GROWTH_BYTES_MAX = 60 * MIB
QUIET_S = 30.0
# Commands that a stranger's frames may reach, by metric names; HTTP also counts refused requests.
OPEN = {
    "kafka": {"api_versions", "sasl_handshake", "sasl_authenticate"},
    "pulsar": {"CONNECT", "PING", "PONG", "AUTH_RESPONSE"},
    "iggy": {"ping", "login_user", "login_with_token"},
    "zookeeper": set(),  # Connecting, ping and closing are not counted.
}
WRONG_CONNECTIONS = 50  # Connections that try passwords at the same time.
HASH_MESSAGE = "braidlog_password_hashes_total "


@dataclass(slots=True)
class SecuredBroker:
    """A broker with users, and the requests of its operator."""

    broker: RunningBroker
    waits_s: list[float] = field(default_factory=list)  # of the operator's requests

    def ask(self, path: str) -> bytes:
        """Return HTTP's answer to the operator. Raises AssertionError unless the
        request succeeds.
        """
        host, port = self.broker.address("http")
        connection = http.client.HTTPConnection(host, port, timeout=60)
        begun = time.monotonic()
        connection.request("GET", path, headers=self.broker.http_headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        self.waits_s.append(time.monotonic() - begun)
        assert answer.status == 200, (answer.status, body)
        return body

    def state(self) -> list[object]:
        """Return the state that no stranger may change."""
        paths = ("topics", "users", "permissions", "groups")
        return [json.loads(self.ask(f"/api/v1/{path}")) for path in paths]

    def hashes(self) -> int:
        """Return the number of hashed passwords so far."""
        lines = self.ask("/metrics").decode().splitlines()
        return int(float(next(line for line in lines if line.startswith(HASH_MESSAGE)).split()[1]))


@contextmanager
def secured(folder: Path, *, slows_down: bool) -> Iterator[SecuredBroker]:
    """Run a broker with authentication, and a user without permissions.

    Without `slows_down`, the broker's password hashes are cheap.
    """
    secret, certificate = folder / "token.secret", folder / "server.pem"
    secret.write_bytes(rows_login.SECRET)
    # Recorded logins use Iggy's default password, which must not work.
    root = folder / "iggy.password"
    root.write_text("neither iggy nor anything that is sent\n")
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificate))
    settings = (
        "access.required=true",
        f"access.token_secret_file={secret}",
        f"listeners.iggy.password_file={root}",
        f"access.slow_down={str(slows_down).lower()}",
        "listeners.kafka-tls.protocol=kafka",
        "listeners.kafka-tls.listen=127.0.0.1:0",
        f"listeners.kafka-tls.tls.certificate_file={certificate}",
        "log_format=json",
    )
    program = "braidlog.broker.cli.main" if slows_down else "conformance.hostile.cheap_hashes"
    with RunningBroker(
        folder / "broker", listen=OPTIONAL, settings=settings, program=program
    ) as broker:
        password = (broker.data_dir / "admin-password").read_text().strip()
        _braidlog(broker, password, "users", "create", rows_login.USER, secret=rows_login.PASSWORD)
        token = _braidlog(broker, password, "tokens", "create", "admin", "watch")
        broker.http_headers = {"Authorization": f"Bearer {token}"}
        yield SecuredBroker(broker)


@contextmanager
def unchanged(server: SecuredBroker) -> Iterator[None]:
    """Check the attack inside the block. Raises AssertionError if the broker has changed."""
    broker = server.broker
    before, logged, memory = server.state(), log_size(broker), broker.resident_bytes()
    files = open_files(broker)
    yield
    deadline = time.monotonic() + QUIET_S
    while open_files(broker) > files and time.monotonic() < deadline:
        time.sleep(0.1)
    assert open_files(broker) <= files
    assert server.state() == before
    assert broker.resident_bytes() - memory <= GROWTH_BYTES_MAX
    check_log(broker, logged)


def handshakes(server: SecuredBroker, family: str, frames: int, seed: int) -> AttackResult:
    """Send mutated handshakes of a family of mechanisms."""
    protocol = rows_login.families()[family]
    with unchanged(server):
        sent = attack(server.broker, protocol, frames, seed)
    _check_reached(protocol, sent)
    return sent


def before_login(server: SecuredBroker, name: str, frames: int, seed: int) -> AttackResult:
    """Send mutated frames of every command of a protocol on connections that never log in."""
    known = protocols()[name]
    talks = [replace(talk, opening=[], opening_apis=[], session=None) for talk in known.talks]
    with unchanged(server):
        sent = attack(
            server.broker, Protocol(name, _numbered(talks), listener=known.listener), frames, seed
        )
    _check_reached(known, sent)
    return sent


def wrong_passwords(server: SecuredBroker, tries: int) -> tuple[int, float, float]:
    """Try wrong passwords of existing and missing users, on many connections.

    Returns the number of hashed passwords, the seconds, and the operator's longest wait meanwhile.
    """
    broker, hashes = server.broker, server.hashes()
    server.waits_s.clear()
    ended = threading.Event()
    left = iter(range(tries))
    lock = threading.Lock()

    def next_guess() -> int | None:
        with lock:
            return next(left, None)

    def guess() -> None:
        """Try over a series of connections: the broker closes a connection without a login after a
        while.
        """
        number = next_guess()
        while number is not None:
            try:
                with Wire(broker.address("iggy")) as wire:
                    while number is not None:
                        name = rows_login.USER if number % 2 else f"nobody-{number % 1000}"
                        wire.send(iggy_frame(LOGIN, text8(name) + text8(f"wrong-{number}")))
                        size = int.from_bytes(wire.take(8)[4:], "little")
                        wire.take(size)
                        number = next_guess()
            except ConnectionError:
                number = next_guess()

    def watch() -> None:
        while not ended.is_set():
            server.ask("/api/v1/topics")
            ended.wait(0.05)

    begun = time.monotonic()
    guessing = [threading.Thread(target=guess) for _ in range(WRONG_CONNECTIONS)]
    watching = threading.Thread(target=watch)
    for thread in (*guessing, watching):
        thread.start()
    for thread in guessing:
        thread.join()
    seconds = time.monotonic() - begun
    ended.set()
    watching.join()
    return server.hashes() - hashes, seconds, max(server.waits_s)


def _numbered(talks: Sequence[ConnectionKind]) -> list[ConnectionKind]:
    return [talk for talk in talks if talk.commands]


def _check_reached(protocol: Protocol, sent: AttackResult) -> None:
    assert not sent.hung, f"{sent.hung} connections were never closed"
    if protocol.name in OPEN:
        assert set(sent.handled) <= OPEN[protocol.name], sent.handled


def _braidlog(broker: RunningBroker, password: str, *arguments: str, secret: str = "") -> str:
    environment = {"BRAIDLOG_URL": broker.url, "BRAIDLOG_USER": "admin"}
    environment["BRAIDLOG_PASSWORD"] = password
    more = []
    if secret:
        file = broker.folder / "password"
        file.write_text(secret + "\n")
        more = ["--password-file", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "braidlog.broker.cli.main", *arguments, *more],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    """Run the attacks; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.hostile.strangers")
    parser.add_argument("--family", choices=[*rows_login.families()], action="append")
    parser.add_argument("--frames", type=int, default=20_000, help="of each family and protocol")
    parser.add_argument("--tries", type=int, default=10_000, help="wrong passwords")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    wanted = options.family or [*rows_login.families()]
    with tempfile.TemporaryDirectory() as folder, secured(Path(folder), slows_down=False) as server:
        for family in wanted:
            with _results_of(f"{family}, handshakes", server) as report:
                report.append(handshakes(server, family, options.frames, options.seed))
        for name in () if options.family else protocols():
            with _results_of(f"{name}, no login", server) as report:
                report.append(before_login(server, name, options.frames, options.seed))
    if not options.family:
        with (
            tempfile.TemporaryDirectory() as folder,
            secured(Path(folder), slows_down=True) as server,
        ):
            cpu = cpu_seconds(server.broker.pid)
            hashed, seconds, wait_s = wrong_passwords(server, options.tries)
            cpu = cpu_seconds(server.broker.pid) - cpu
            print(
                f"{options.tries} wrong passwords in {seconds:.1f} s: {hashed} hashed, {cpu:.1f} s"
                f" of processor time, longest wait of the operator {wait_s:.2f} s",
                flush=True,
            )
    return 0


@contextmanager
def _results_of(attack_name: str, server: SecuredBroker) -> Iterator[list[AttackResult]]:
    """Report the frames sent inside the block, their rate, and the broker's cost."""
    cpu = cpu_seconds(server.broker.pid)
    report: list[AttackResult] = []
    yield report
    cpu = cpu_seconds(server.broker.pid) - cpu
    for sent in report:
        reached = ", ".join(f"{name} {count}" for name, count in sent.handled.most_common(5))
        print(
            f"{attack_name}: {sent.total} frames in {sent.seconds:.1f} s,"
            f" {sent.total / cpu:.0f} for each second of the broker's processor time;"
            f" reached: {reached}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
