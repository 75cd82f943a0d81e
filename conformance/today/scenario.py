"""The steps of a client: every codec, a group of three with a death, resuming, admin calls.

Knows programs as commands that print lines of JSON, and no library.
"""

import base64
import json
import queue
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Any

from conformance.clients.raw.kafka import KafkaWire

CALL_S = 240  # Some commands start a dozen JVMs in sequence.
GROUP_S = 60
REFUSAL_S = 20.0  # Until a client reports a refusal; on an idle machine mostly the start of a JVM.
SHARED_S = 3.0  # After a member's death, the time until the others have its partitions.
SESSION_S = 6
PARTITIONS = 3
Line = dict[str, Any]


class ScenarioFailed(Exception):
    """The client failed a step, or did not receive the expected records."""


def _b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


HEADERS = [["a", _b64(b"1")], ["a", _b64(b"2")], ["b", _b64(b"")]]
RECORDS = [
    (_b64(key), _b64(value), headers)
    for key, value, headers in (
        (b"k0", b"v0", []),
        (None, b"v1", []),
        (b"k2", None, []),
        (b"", b"", []),
        (b"k4", b"v4", HEADERS),
        (b"k5", b"x" * 5000, []),
    )
]


class ClientProgram:
    """A client's program at a broker."""

    def __init__(self, command: Sequence[str], address: str) -> None:
        self._command = list(command)
        self._address = address

    def make(self, topic: str) -> None:
        """Create a topic by a Metadata request: not every library requests a missing topic."""
        host, _, port = self._address.rpartition(":")
        with KafkaWire((host, int(port))) as wire:
            wire.create(topic)

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic as Kafka's own admin tools do: the broker may be a real Kafka."""
        host, _, port = self._address.rpartition(":")
        with KafkaWire((host, int(port))) as wire:
            wire.create_topic(topic, partitions)

    def call(self, verb: str, *arguments: object) -> list[Line]:
        """Return the lines of a command that ends. Raises ScenarioFailed."""
        command = [*self._command, verb, self._address, *map(str, arguments)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S)
        except subprocess.TimeoutExpired as late:
            raise ScenarioFailed(f"{verb} took more than {CALL_S} s") from late
        if done.returncode:
            raise ScenarioFailed(f"{verb}: {_reason(done.stderr)}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def member(self, topic: str, group: str, verb: str = "member") -> "ScenarioMember":
        """Return a member of a group, in its own process."""
        return ScenarioMember([*self._command, verb, self._address, topic, group])


def _reason(output: str) -> str:
    lines = output.strip().splitlines()
    causes = [
        line for line in lines if re.search(r"(Error|Exception|Failed|NotFound): |%ERROR", line)
    ]
    return (causes or lines or ["no reason given"])[-1].strip()


class ScenarioMember:
    """A group's member, and its output so far."""

    def __init__(self, command: Sequence[str]) -> None:
        self.assigned: list[int] = []
        self.values: list[str] = []
        self.committed = False
        self.places: set[tuple[int, int]] = set()  # partition and offset of the records committed
        self._uncommitted: set[tuple[int, int]] = set()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def look(self) -> None:
        """Take the new output lines."""
        while not self._lines.empty():
            line = json.loads(self._lines.get())
            if "assigned" in line:
                self.assigned = sorted(line["assigned"])
            elif "committed" in line:
                self.committed = line["committed"]
                if self.committed:
                    self.places |= self._uncommitted
                self._uncommitted = set()
            else:
                self._uncommitted.add((line["partition"], line["offset"]))
                self.values.append(line["value"])
                self.committed = False

    def stop(self) -> None:
        """End the process in good order: the member leaves the group."""
        self._process.terminate()
        self._process.wait(timeout=GROUP_S)

    def kill(self) -> None:
        """Kill the process, without leaving the group."""
        self._process.kill()
        self._process.wait()


def check_codec(client: ClientProgram, topic: str, codec: str, number: int) -> None:
    """Check that records of a codec are read unchanged; `number` calls came before."""
    client.call("produce", topic, codec)
    count = len(RECORDS)
    lines = client.call("read", topic, (number + 1) * count)[-count:]
    rows = [(line["key"], line["value"], line["headers"]) for line in lines]
    wanted = [(key, value, headers or []) for key, value, headers in RECORDS]
    if [(key, value, headers or []) for key, value, headers in rows] != wanted:
        raise ScenarioFailed(f"{codec}: {rows} instead of {wanted}")
    if [line["offset"] for line in lines] != list(range(number * count, (number + 1) * count)):
        raise ScenarioFailed(f"{codec}: wrong offsets")


def check_group(client: ClientProgram, topic: str, group: str) -> float:
    """Check that three members share the partitions, then two after a death, and that a later
    member continues at their positions.

    Returns the seconds from the death to the new assignment.
    """
    client.make(topic)
    members = [client.member(topic, group) for _ in range(3)]
    try:
        _until(
            members,
            lambda: all(len(member.assigned) == 1 for member in members) and _covers(members),
        )
        victim = next(member for member in members if member.assigned != [0])
        members.remove(victim)
        victim.kill()
        died = time.monotonic()
        _until(members, lambda: _covers(members))
        took = time.monotonic() - died
        client.call("produce", topic, "none")
        count = len(RECORDS)
        _until(members, lambda: _received_count(members) == count and _committed(members))
    finally:
        for member in members:
            member.kill()
    client.call("produce", topic, "none")
    later = client.member(topic, group)
    try:
        _until([later], lambda: len(later.values) == count and later.committed)
    finally:
        later.kill()
    return took


def check_modern(client: ClientProgram, topic: str, group: str) -> None:
    """Check that two members of the consumer protocol share the partitions, read all records and
    commit, and that a later member continues at their positions.
    """
    client.make(topic)
    members = [client.member(topic, group, "modern") for _ in range(2)]
    count = len(RECORDS)
    try:
        _until(members, lambda: all(member.assigned for member in members) and _covers(members))
        client.call("produce", topic, "none")
        _until(members, lambda: _received_count(members) == count and _committed(members))
        members[1].kill()
    finally:
        for member in members:
            member.kill()


def check_migration(client: ClientProgram, topic: str, group: str) -> None:
    """Check that a group goes from the classic to the consumer protocol and back, a member after
    the other, while records come: each record is committed by a single member.
    """
    client.make(topic)
    members = [client.member(topic, group) for _ in range(3)]
    ended: list[ScenarioMember] = []
    produced = 0
    try:
        _until(members, lambda: all(member.assigned for member in members) and _covers(members))
        for verb in ("modern", "member"):
            for number in range(len(members)):
                client.call("produce", topic, "none")
                produced += len(RECORDS)
                members[number].stop()
                ended.append(members[number])
                members[number] = client.member(topic, group, verb)
            _until(members, lambda: all(member.assigned for member in members) and _covers(members))
        _until([*members, *ended], lambda: len(_places([*members, *ended])) >= produced)
    finally:
        for member in members:
            member.kill()
    places = _places([*members, *ended])
    if sorted(places) != [(0, offset) for offset in range(produced)]:
        raise ScenarioFailed(f"records lost or repeated after a commit: {sorted(places)}")


def _places(members: Sequence[ScenarioMember]) -> list[tuple[int, int]]:
    return [place for member in members for place in member.places]


def check_share(client: ClientProgram, topic: str, group: str) -> None:
    """Check that members of a share group get records, release some, and that tools show them."""
    client.make(topic)
    client.call("share", topic, group)


def check_refusal(client: ClientProgram, topic: str) -> str:
    """Check that an unserved request is refused at once. Returns the client's message."""
    began = time.monotonic()
    try:
        client.call("transact", topic)
    except ScenarioFailed as refusal:
        took = time.monotonic() - began
        if took > REFUSAL_S:
            raise ScenarioFailed(f"{took:.1f} s until the client said: {refusal}") from None
        return f"{refusal} (after {took:.1f} s)"
    raise ScenarioFailed("the client was not refused")


def _covers(members: Sequence[ScenarioMember]) -> bool:
    return sorted(part for member in members for part in member.assigned) == list(range(PARTITIONS))


def _committed(members: Sequence[ScenarioMember]) -> bool:
    return all(member.committed or not member.values for member in members)


def _received_count(members: Sequence[ScenarioMember]) -> int:
    return sum(len(member.values) for member in members)


def _until(members: Sequence[ScenarioMember], holds: Any) -> None:
    deadline = time.monotonic() + GROUP_S
    while time.monotonic() < deadline:
        for member in members:
            member.look()
        if holds():
            return
        time.sleep(0.05)
    shares = [(member.assigned, len(member.values), member.committed) for member in members]
    raise ScenarioFailed(f"the group did not come so far in {GROUP_S} s: {shares}")
