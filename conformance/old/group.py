"""`python -m conformance.old.group`: a high-level group of Kafka 0.8 under load and faults.

Three members on 12 partitions with 20,000 messages a second. In turn: a member is killed with
SIGKILL and replaced, a member is frozen for 20 s, and the broker is restarted after SIGKILL; with
`--cluster` the broker that has the sessions is killed among three, then another broker. Afterwards
every message was received at least once, the partitions were shared out again in time, and no
position moved backward. A broker of the cluster that loses its lease, on an overloaded machine, is
started again, as a supervisor does; the output says so.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from conformance.clients.raw.zookeeper import SessionExpired, ZooKeeper, ZooKeeperError
from conformance.ending import end_on_signals
from conformance.old.group_brokers import (
    LOOK_S,
    WAIT_S,
    BrokerSupervisor,
    PromiseBroken,
    cluster,
    controller,
    single,
    stale_commits,
)
from conformance.old.programs import java_command
from conformance.server import RunningBroker

GROUP, TOPIC, PARTITIONS = "g", "orders", 12
MEMBERS: Final = ("a", "b", "c")
VALUE: Final = b"v" * 100
QUIET: Final = {"log_level": 0, "log.connection.close": False, "reconnect.backoff.max.ms": 500}
SESSION_S: Final = 6.0  # zookeeper.session.timeout.ms of 0.8's consumer
BACKOFF_S: Final = 2.0  # rebalance.backoff.ms
# Rebalances that a change may take, each with its back-off, and room for a busy machine.
REBALANCES: Final = 4
ROOM_S: Final = 10.0
# In a cluster each of a rebalance's some thirty changes waits for a round of the shared store.
CLUSTER_ROOM_S: Final = 40.0
FREEZE_S: Final = 20.0
PAUSE_S: Final = 10.0
RECEIVED_LOOK_S: Final = 2.0  # All runs of offsets are sorted at each look.
OWNERS: Final = f"/consumers/{GROUP}/owners/{TOPIC}"


def _data(client: ZooKeeper, *, path: str) -> bytes | None:
    """Return the data of a node."""
    return client.get(path)[0]


@dataclass
class MemberProcess:
    """A member's process, and the runs of offsets that it received."""

    name: str
    process: subprocess.Popen[str]
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    errors: str = ""

    def read(self) -> None:
        """Read the process's output to its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return  # Killed in the middle of the line, so before the commit.
            partition, first, last = map(int, line.split())
            self.runs.append((partition, first, last))


class Group:
    """Members of a group, and the state of the group as ZooKeeper shows it."""

    def __init__(self, addresses: Callable[[], Sequence[str]], folder: Path) -> None:
        """`addresses` returns the ZooKeeper listeners of the running brokers."""
        self.members: list[MemberProcess] = []
        self._addresses = addresses
        self._folder = folder
        self._connect = ",".join(addresses())
        self._viewer = ZooKeeper(40_000, answer_s=10.0)

    def start(self, name: str) -> MemberProcess:
        """Start a member."""
        arguments = [*java_command("GroupMember"), self._connect, GROUP, TOPIC, name]
        with open(self._folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
        member = MemberProcess(name, process)
        self.members.append(member)
        threading.Thread(target=member.read, daemon=True).start()
        return member

    def owners(self) -> dict[int, str]:
        """Return the member that owns each partition, by the names of members."""
        owners = {}
        for partition in self._ask(lambda client: client.children(OWNERS)[0]):
            path = f"{OWNERS}/{partition}"
            data = self._ask(partial(_data, path=path))
            # The data are the group, the member's name, and the number of its thread.
            owners[int(partition)] = (data or b"").decode().rsplit("-", 1)[0].split("_", 1)[-1]
        return owners

    def _ask(self, ask: Callable[[ZooKeeper], object]) -> object:
        while True:
            try:
                if not self._viewer.is_connected:
                    self._reconnect()
                return ask(self._viewer)
            except ZooKeeperError:
                return []
            except OSError:
                time.sleep(LOOK_S)

    def _reconnect(self) -> None:
        for address in self._addresses():
            host, _, port = address.rpartition(":")
            try:
                self._viewer.connect((host, int(port)))
                return
            except SessionExpired:
                self._viewer = ZooKeeper(40_000, answer_s=10.0)
            except OSError:
                continue
        raise ConnectionError("no broker answers")

    def await_shared(self, names: Sequence[str], limit_s: float) -> float:
        """Return the seconds until these members share all partitions. Raises PromiseBroken."""
        begun = time.monotonic()
        while True:
            owners = self.owners()
            if len(owners) == PARTITIONS and set(owners.values()) == set(names):
                return time.monotonic() - begun
            if time.monotonic() - begun > limit_s:
                raise PromiseBroken(f"after {limit_s:.0f} s the owners are {owners}, not {names}")
            time.sleep(LOOK_S)

    def kill(self) -> None:
        """End all members."""
        for member in self.members:
            member.process.kill()
            member.process.wait()


class SteadyProducer:
    """A producer at a steady rate, and the highest acknowledged offset of each partition."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self.acked: dict[int, int] = {}
        self.lost: list[KafkaError] = []
        self.sent = 0
        self._rate = rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 20,
                "acks": "all",
                "queue.buffering.max.messages": 2_000_000,
                "message.timeout.ms": 120_000,
                **QUIET,
            }
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._ends.is_set():
            due = int((time.monotonic() - begun) * self._rate)
            while self.sent < due:
                try:
                    partition = self.sent % PARTITIONS
                    self._producer.produce(TOPIC, VALUE, partition=partition, callback=self._acked)
                except BufferError:
                    break
                self.sent += 1
            self._producer.poll(0.01)

    def _acked(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.lost.append(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        self.acked[partition] = max(offset, self.acked.get(partition, -1))

    def stop(self) -> None:
        """Stop producing, and wait for all acknowledgements. Raises PromiseBroken."""
        self._ends.set()
        self._thread.join()
        left = self._producer.flush(120)
        if left or self.lost:
            raise PromiseBroken(f"{left} messages without an answer, lost: {self.lost[:3]}")


class PositionWatcher:
    """Watches the group's positions, as a client of today reads them."""

    def __init__(self, bootstrap: str) -> None:
        self.highest: dict[int, int] = {}
        self.backward: list[tuple[int, int, int]] = []
        self.looks = 0
        self._last: dict[int, int] = {}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **QUIET})
        self._wanted = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(LOOK_S):
            try:
                committed = self._consumer.committed(self._wanted, 5.0)
            except KafkaException:  # A broker restarts.
                continue
            self.looks += 1
            for at in committed:
                if at.error is None and at.offset >= 0:
                    self._note(at.partition, at.offset)

    def _note(self, partition: int, offset: int) -> None:
        before = self.highest.get(partition, 0)
        if offset < before:
            self.backward.append((partition, before, offset))
            if offset != self._last.get(partition):
                clock = time.strftime("%H:%M:%S")
                print(f"{clock}: partition {partition} from {before} to {offset}", flush=True)
        self._last[partition] = offset
        self.highest[partition] = max(before, offset)

    def stop(self) -> None:
        """Stop watching. Raises PromiseBroken for a position that moved backward."""
        self._ends.set()
        self._thread.join()
        self._consumer.close()
        if self.backward:
            raise PromiseBroken(f"positions moved backward: {self.backward[:5]}")


def missing(members: Sequence[MemberProcess], ends: dict[int, int]) -> dict[int, list[int]]:
    """Return the first offsets of each partition that no member received."""
    result = {}
    for partition, last in ends.items():
        runs = sorted(
            (first, end)
            for member in members
            for number, first, end in [*member.runs]
            if number == partition
        )
        position = 0
        for first, end in runs:
            if first > position:
                break
            position = max(position, end + 1)
        if position <= last:
            result[partition] = [position, last]
    return result


class GroupRun:
    """A group under load, and its faults; `told` has a line for each."""

    def __init__(
        self,
        group: Group,
        load: SteadyProducer,
        positions: PositionWatcher,
        supervisor: BrokerSupervisor,
    ) -> None:
        self.group, self.load, self.positions = group, load, positions
        self.supervisor = supervisor
        self.steps: list[tuple[str, str]] = []

    def say(self, event: str, outcome: str) -> None:
        """Report a step."""
        print(f"{time.strftime('%H:%M:%S')} {event:44} {outcome}", flush=True)
        self.steps.append((event, outcome))

    def _shared(self, event: str, names: Sequence[str], limit_s: float) -> None:
        seconds = self.group.await_shared(names, limit_s)
        self.supervisor.check()
        self.say(event, f"shared out after {seconds:.1f} s (limit {limit_s:.0f} s)")

    def faults_of_members(self, brokers: Sequence[RunningBroker]) -> None:
        """Kill a member and replace it; freeze a member for 20 s."""
        room = ROOM_S if len(brokers) == 1 else CLUSTER_ROOM_S
        limit = SESSION_S + REBALANCES * BACKOFF_S + room
        victim = next(member for member in self.group.members if member.name == "b")
        victim.process.kill()
        self._shared("a member ends by kill -9", ("a", "c"), limit)
        self.group.start("d")
        self._shared("a new member joins", ("a", "c", "d"), limit)
        frozen = next(member for member in self.group.members if member.name == "c")
        frozen.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        try:
            self._shared("a member is frozen for 20 s", ("a", "d"), limit)
            time.sleep(max(0.0, FREEZE_S - (time.monotonic() - begun)))
        finally:
            frozen.process.send_signal(signal.SIGCONT)
        self._shared("the frozen member thaws", ("a", "c", "d"), limit)
        stale = sum(stale_commits(broker, self.supervisor) for broker in brokers)
        self.say("  old commits of the thawed member", f"{stale}, which moved nothing")

    def restart(self, broker: RunningBroker, event: str, *, at_once: bool) -> None:
        """Kill a broker; the group goes on, with the broker started `at_once` or without it."""
        before = dict(self.positions.highest)
        self.supervisor.keep_down(broker)
        broker.signal(signal.SIGKILL)
        broker.wait()
        begun = time.monotonic()
        if at_once:
            self.start(broker)
        while any(
            self.positions.highest.get(index, 0) <= before.get(index, 0)
            for index in range(PARTITIONS)
        ):
            self.supervisor.check()
            if time.monotonic() - begun > WAIT_S:
                received = [member.runs[-1:] for member in self.group.members]
                raise PromiseBroken(
                    f"{event}: a position does not move on after {WAIT_S:.0f} s: {before} and"
                    f" {self.positions.highest} in {self.positions.looks} looks; acknowledged:"
                    f" {self.load.acked}, received: {received}"
                )
            time.sleep(LOOK_S)
        self.say(event, f"every position moves on after {time.monotonic() - begun:.1f} s")
        self._shared("  and the group", ("a", "c", "d"), WAIT_S)
        if not at_once:
            self.start(broker)

    def start(self, broker: RunningBroker) -> None:
        """Start a killed broker."""
        self.supervisor.launch(broker)
        self.supervisor.await_ready()

    def finish(self) -> None:
        """Stop the load; every message was received. Raises PromiseBroken."""
        self.load.stop()
        ends = dict(self.load.acked)
        left = self._await_received(ends)
        self.positions.stop()
        if left:
            raise PromiseBroken(f"never received: {left}")
        received = sum(last - first + 1 for m in self.group.members for _, first, last in m.runs)
        total = sum(ends.values()) + PARTITIONS
        if len(ends) != PARTITIONS or total < self.load.sent:
            raise PromiseBroken(f"the log holds {total} of {self.load.sent} acknowledged messages")
        self.say("every message at least once", f"{total} messages, {received - total} twice")
        self.say("positions never backward", f"{self.positions.looks} looks at 12 positions")

    def _await_received(self, ends: dict[int, int]) -> dict[int, list[int]]:
        """Wait until all messages were received; return the missing messages. On a busy machine
        the members read for minutes, so only WAIT_S without a further message is a failure.
        """
        left = missing(self.group.members, ends)
        moved = time.monotonic()
        while left and time.monotonic() - moved < WAIT_S:
            time.sleep(RECEIVED_LOOK_S)
            before, left = left, missing(self.group.members, ends)
            if left != before:
                moved = time.monotonic()
        return left


def play(
    brokers: list[RunningBroker], supervisor: BrokerSupervisor, folder: Path, rate: int
) -> list[tuple[str, str]]:
    """Run the group through all faults. Raises PromiseBroken."""
    supervisor.await_ready()
    addresses = [broker.addresses["zookeeper"] for broker in brokers]
    bootstrap = ",".join(broker.addresses["kafka"] for broker in brokers)
    _create(addresses[0])
    group = Group(lambda: addresses, folder)
    for name in MEMBERS:
        group.start(name)
    load, positions = SteadyProducer(bootstrap, rate), PositionWatcher(bootstrap)
    run = GroupRun(group, load, positions, supervisor)
    try:
        seconds = group.await_shared(MEMBERS, WAIT_S)
        run.say("three members share 12 partitions", f"after {seconds:.1f} s")
        time.sleep(PAUSE_S)
        run.faults_of_members(brokers)
        if len(brokers) == 1:
            run.restart(brokers[0], "the broker is killed and started", at_once=True)
        else:
            owner = brokers[controller(addresses) - 1]
            run.restart(owner, "the broker with the sessions is killed", at_once=False)
            other = next(broker for broker in brokers if broker is not owner)
            run.restart(other, "another broker is killed", at_once=False)
        time.sleep(PAUSE_S)
        run.finish()
        supervisor.check()
        run.say("brokers that lost their lease", f"{supervisor.restarts}, started again")
    finally:
        group.kill()
    return run.steps


def _create(address: str) -> None:
    host, _, port = address.rpartition(":")
    client = ZooKeeper()
    client.connect((host, int(port)))
    node = client.children("/brokers/ids")[0][0]
    lists = ",".join(f'"{index}":[{node}]' for index in range(PARTITIONS))
    client.create(f"/brokers/topics/{TOPIC}", f'{{"version":1,"partitions":{{{lists}}}}}'.encode())
    client.end()


def main(arguments: list[str]) -> int:
    """Run the group; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m conformance.old.group", description=__doc__)
    parser.add_argument("--cluster", action="store_true", help="three brokers over a shared store")
    parser.add_argument("--rate", type=int, default=20_000, help="messages a second")
    parser.add_argument("--logs", type=Path, help="a folder for the logs of the members")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="braidlog-group-") as scratch:
        logs = options.logs or Path(scratch)
        logs.mkdir(parents=True, exist_ok=True)
        run = cluster if options.cluster else single
        with run(Path(scratch)) as brokers, BrokerSupervisor(brokers) as supervisor:
            try:
                play(brokers, supervisor, logs, options.rate)
            except PromiseBroken as failure:
                print(f"FAILED: {failure}", flush=True)
                for number, broker in enumerate(brokers):
                    (logs / f"broker-{number}.log").write_text(broker.log())
                return 1
    return 0


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))
