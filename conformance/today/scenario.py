"""What one client goes through: every codec, a group of three with a death, resuming, admin calls.

Knows programs as commands that speak lines of JSON, and no library.
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

from conformance.raw.kafka import KafkaWire

CALL_S = 240  # Some commands start a dozen JVMs one after the other.
GROUP_S = 60
REFUSAL_S = 20.0  # Until a client says why it cannot go on; idle, most of it is the start of a JVM.
SHARED_S = 3.0  # After a member's death the others have its partitions.
SESSION_S = 6
PARTITIONS = 3
Line = dict[str, Any]


class Failed(Exception):
    """The client did not do, or was not given, what it should."""


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


class Client:
    """A client's program at one broker."""

    def __init__(self, command: Sequence[str], address: str) -> None:
        self._command = list(command)
        self._address = address

    def make(self, topic: str) -> None:
        """Have a topic made: not every library asks for one that is not there."""
        host, _, port = self._address.rpartition(":")
        with KafkaWire((host, int(port))) as wire:
            wire.create(topic)

    def create(self, topic: str, partitions: int) -> None:
        """As Kafka's own admin tools make a topic: a real Kafka may be asked, too."""
        host, _, port = self._address.rpartition(":")
        with KafkaWire((host, int(port))) as wire:
            wire.create_topic(topic, partitions)

    def call(self, what: str, *arguments: object) -> list[Line]:
        """The lines of a command that ends. Raises Failed."""
        command = [*self._command, what, self._address, *map(str, arguments)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{what} took more than {CALL_S} s") from late
        if done.returncode:
            raise Failed(f"{what}: {_reason(done.stderr)}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def member(self, topic: str, group: str) -> "Member":
        """A member of a group, in a process of its own."""
        return Member([*self._command, "member", self._address, topic, group])


def _reason(said: str) -> str:
    lines = said.strip().splitlines()
    causes = [
        line for line in lines if re.search(r"(Error|Exception|Failed|NotFound): |%ERROR", line)
    ]
    return (causes or lines or ["no reason given"])[-1].strip()


class Member:
    """A group's member, and what it has told so far."""

    def __init__(self, command: Sequence[str]) -> None:
        self.assigned: list[int] = []
        self.values: list[str] = []
        self.committed = False
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
        """Take what it has told since."""
        while not self._lines.empty():
            line = json.loads(self._lines.get())
            if "assigned" in line:
                self.assigned = sorted(line["assigned"])
            elif "committed" in line:
                self.committed = True
            else:
                self.values.append(line["value"])
                self.committed = False

    def kill(self) -> None:
        """Without a word to the broker."""
        self._process.kill()
        self._process.wait()


def check_codec(client: Client, topic: str, codec: str, number: int) -> None:
    """Records produced with a codec are read as they were; `number` calls came before."""
    client.call("produce", topic, codec)
    count = len(RECORDS)
    lines = client.call("read", topic, (number + 1) * count)[-count:]
    found = [(one["key"], one["value"], one["headers"]) for one in lines]
    wanted = [(key, value, headers or []) for key, value, headers in RECORDS]
    if [(key, value, headers or []) for key, value, headers in found] != wanted:
        raise Failed(f"{codec}: {found} instead of {wanted}")
    if [one["offset"] for one in lines] != list(range(number * count, (number + 1) * count)):
        raise Failed(f"{codec}: wrong offsets")


def check_group(client: Client, topic: str, group: str) -> float:
    """Three members share the partitions, two when one is dead, and who comes later goes on where
    they were. Returns the seconds from the death to the new shares.
    """
    client.make(topic)
    members = [client.member(topic, group) for _ in range(3)]
    try:
        _until(members, lambda: all(len(one.assigned) == 1 for one in members) and _covers(members))
        victim = next(one for one in members if one.assigned != [0])
        members.remove(victim)
        victim.kill()
        died = time.monotonic()
        _until(members, lambda: _covers(members))
        took = time.monotonic() - died
        client.call("produce", topic, "none")
        count = len(RECORDS)
        _until(members, lambda: _taken(members) == count and _committed(members))
    finally:
        for one in members:
            one.kill()
    client.call("produce", topic, "none")
    later = client.member(topic, group)
    try:
        _until([later], lambda: len(later.values) == count and later.committed)
    finally:
        later.kill()
    return took


def check_refusal(client: Client, topic: str) -> str:
    """What is not served is refused at once. Returns what the client says."""
    began = time.monotonic()
    try:
        client.call("transact", topic)
    except Failed as refusal:
        took = time.monotonic() - began
        if took > REFUSAL_S:
            raise Failed(f"{took:.1f} s until the client said: {refusal}") from None
        return f"{refusal} (after {took:.1f} s)"
    raise Failed("the client was not refused")


def _covers(members: Sequence[Member]) -> bool:
    return sorted(part for one in members for part in one.assigned) == list(range(PARTITIONS))


def _committed(members: Sequence[Member]) -> bool:
    return all(one.committed or not one.values for one in members)


def _taken(members: Sequence[Member]) -> int:
    return sum(len(one.values) for one in members)


def _until(members: Sequence[Member], holds: Any) -> None:
    deadline = time.monotonic() + GROUP_S
    while time.monotonic() < deadline:
        for one in members:
            one.look()
        if holds():
            return
        time.sleep(0.05)
    told = [(one.assigned, len(one.values), one.committed) for one in members]
    raise Failed(f"the group did not come so far in {GROUP_S} s: {told}")
