"""`python -m conformance.today.many_groups [--groups 1000]`: groups of three members each; a member
of every group dies at the same moment.

Prints the times of joining and of the new assignment, and the turns of the broker's loop with 50 ms
of processor time or more. Any such turn makes the exit code 1. The members implement the first
versions of the group protocol here: no library runs thousands of members.
"""

import argparse
import resource
import struct
import sys
import time
from collections.abc import Callable
from functools import partial

import trio

from conformance.clients.raw.kafka import data, frame, string
from conformance.server import RunningBroker

JOIN, HEARTBEAT, SYNC = 11, 12, 14
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27
MEMBERS = 3
SESSION_MS, HEARTBEAT_S = 60_000, 3.0
SHARED_S = 300.0  # Until all members have partitions, on a busy machine.
GROUPS_AT_ONCE = 200  # The kernel holds 1,024 connections until the broker accepts them.
FILES = 4 * 4096
TURN_MS = 50
SETTINGS = (f"loop_turn_log_ms={TURN_MS}",)


class AnswerReader:
    """The unread rest of an answer's body."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._pos = 0

    def number(self, layout: str) -> int:
        """Return the next number, of a struct's layout."""
        (number,) = struct.unpack_from(layout, self._body, self._pos)
        self._pos += struct.calcsize(layout)
        return int(number)

    def text(self) -> bytes:
        """Return the next string."""
        return self._take(self.number(">h"))

    def data(self) -> bytes:
        """Return the next bytes."""
        return self._take(self.number(">i"))

    def _take(self, size: int) -> bytes:
        self._pos += size
        return self._body[self._pos - size : self._pos]


class Generations:
    """The generation of each member's assignment, by group."""

    def __init__(self, groups: int) -> None:
        self.of = [dict[int, int]() for _ in range(groups)]

    def is_done(self, members: range, last: list[int]) -> bool:
        """Return True if these members have assignments of a common generation after the last.

        Only the first groups count, as many as `last` has generations.
        """
        return all(
            set(generations) == set(members)
            and len(set(generations.values())) == 1
            and generations[members[0]] > old
            for generations, old in zip(self.of, last, strict=False)
        )


class RejoiningMember:
    """A member: joins, takes its assignment, and rejoins on request."""

    def __init__(self, number: int, place: int, shares: Generations) -> None:
        self._name = string(b"many-%d" % number)
        self._place = place
        self._shares = shares.of[number]
        self._id = string(b"")
        self._stream: trio.SocketStream
        self.life = trio.CancelScope()

    async def live(self, host: str, port: int) -> None:
        """Run until cancelled: then the connection ends, as in a process's death."""
        self._stream = await trio.open_tcp_stream(host, port)
        with self.life:
            async with self._stream:
                await self._live()

    async def _live(self) -> None:
        while True:
            generation = await self._joined()
            self._shares[self._place] = generation
            mine = self._name + struct.pack(">i", generation) + self._id
            while not (await self._ask(HEARTBEAT, mine)).number(">h"):
                await trio.sleep(HEARTBEAT_S)
            del self._shares[self._place]

    async def _joined(self) -> int:
        """Join; return the generation of the assignment."""
        protocols = struct.pack(">i", 1) + string(b"range") + data(b"")
        while True:
            session = struct.pack(">i", SESSION_MS)
            body = self._name + session + self._id + string(b"consumer") + protocols
            answer = await self._ask(JOIN, body)
            error, generation = answer.number(">h"), answer.number(">i")
            if error == UNKNOWN_MEMBER_ID:  # Too late: rejoin as a new member, as a library does.
                self._id = string(b"")
                continue
            assert not error, f"JoinGroup: {error}"
            _, leader, own = answer.text(), answer.text(), answer.text()
            self._id = string(own)
            members = []
            for _ in range(answer.number(">i")):
                members.append(answer.text())
                answer.data()
            shares = [string(member) + data(b"share") for member in members if leader == own]
            assignments = struct.pack(">i", len(shares)) + b"".join(shares)
            body = self._name + struct.pack(">i", generation) + self._id + assignments
            error = (await self._ask(SYNC, body)).number(">h")
            if not error:
                return generation
            assert error in (REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID), f"SyncGroup: {error}"

    async def _ask(self, key: int, body: bytes) -> AnswerReader:
        await self._stream.send_all(frame(key, 0, body))
        received = b""
        while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
            part = await self._stream.receive_some()
            assert part, "the broker closed the connection"
            received += part
        return AnswerReader(received[8:])


async def live_and_die(groups: int, host: str, port: int, members_each: int = MEMBERS) -> None:
    """Let all members join and a member of each group die; the others get new assignments."""
    shares = Generations(groups)
    members = [
        RejoiningMember(number, place, shares)
        for number in range(groups)
        for place in range(members_each)
    ]
    async with trio.open_nursery() as nursery:
        began = time.monotonic()
        for begun in range(0, groups, GROUPS_AT_ONCE):
            coming = begun + GROUPS_AT_ONCE
            for member in members[begun * members_each : coming * members_each]:
                nursery.start_soon(member.live, host, port)
            have_come = [0] * min(coming, groups)
            await _until(partial(shares.is_done, range(members_each), have_come))
        print(
            f"{groups} groups of {members_each} joined in {time.monotonic() - began:.1f} s",
            flush=True,
        )
        last = [generations.pop(0) for generations in shares.of]
        for member in members[::members_each]:
            member.life.cancel()
        began = time.monotonic()
        await _until(lambda: shares.is_done(range(1, members_each), last))
        print(f"shared out again in {time.monotonic() - began:.1f} s", flush=True)
        nursery.cancel_scope.cancel()


async def _until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(SHARED_S):
        while not holds():
            await trio.sleep(0.05)


def main() -> int:
    """Return 0 if no turn was long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    options = parser.parse_args()
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    with RunningBroker(listen={"kafka": "127.0.0.1:0"}, others=False, settings=SETTINGS) as broker:
        trio.run(live_and_die, options.groups, *broker.address("kafka"))
        held = [line for line in broker.new_log_lines() if "loop_held" in line]
        broker.stop()
    print(*held, sep="\n")
    print(f"{len(held)} turns of {TURN_MS} ms or more")
    return int(bool(held))


if __name__ == "__main__":
    sys.exit(main())
