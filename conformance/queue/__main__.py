"""`python -m conformance.queue [--records N] [--kills N] [--report FILE]`: one queue.

Members of a Kafka share group (confluent-kafka), Pulsar Shared consumers and HTTP consumers read
one subscription. Producers of Kafka, Pulsar (batched) and HTTP have filled the topic. Workers are
killed (SIGKILL), and every tenth kill is the broker's.

The judge demands: a value is held by one consumer at a time; none is received after its
acknowledgement was answered; in the end each value is acknowledged or, at the limit of deliveries,
in the dead letter topic; a member's delivery count is at least the number of deliveries that the
judge saw since the last start of the broker.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import confluent_kafka
import httpx
import pulsar
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from conformance.queue.worker import GROUP
from conformance.server import RunningBroker

WORKERS: Final = ("share", "share", "share", "pulsar", "pulsar", "pulsar", "http", "http")
TOPIC, DEAD_LETTERS = "queue", "queue-dead"
LISTENER: Final = {"share": "kafka", "pulsar": "pulsar", "http": "http"}
BROKER_KILLS: Final = 10  # Every so many kills are the broker's.
HTTP_BATCH: Final = 500
UNSENT_MAX: Final = 50_000  # Of the 100,000 records that librdkafka's queue takes.
KILL_EVERY_S: Final = 0.7
RECONNECT_NS: Final = 10 * 1_000_000_000
QUIET_S: Final = 120.0  # Without any event, the run has failed.
SHOWN: Final = 20


@dataclass(slots=True)
class Worker:
    """A worker process."""

    kind: str
    process: subprocess.Popen[bytes]
    errors: IO[bytes]  # Standard error.


@dataclass(slots=True)
class Judge:
    """Events of all workers, judged in the order of their times at the end."""

    events: list[tuple[int, str, str, int, int]] = field(default_factory=list)
    kills: list[int] = field(default_factory=list)  # Times at which the broker was killed,
    starts: list[int] = field(default_factory=list)  # and at which the next broker was ready.
    ends: dict[int, int] = field(default_factory=dict)  # Worker -> time of its end.
    done: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)  # Values in the dead letter topic.
    unanswered: set[int] = field(default_factory=set)  # Workers whose acks have no answer.
    failed: dict[int, str] = field(default_factory=dict)  # Worker -> error by which it ended.

    def read(self, number: int, stream: IO[bytes]) -> None:
        """Take the events of a worker until its end."""
        for line in stream:
            parts = line.decode().split()
            if len(parts) == 4:
                at, event, value, count = parts
                self.events.append((int(at), event, value, int(count), number))
                if event == "D":
                    self.done.add(value)

    def verdict(self, values: set[str]) -> list[str]:
        """Return the faults."""
        faults: list[str] = []
        last: dict[str, tuple[str, int]] = {}  # Value -> event, worker.
        holder: dict[str, tuple[int, int]] = {}  # Value -> worker, time.
        acked: dict[str, int] = {}
        seen: dict[str, list[int]] = defaultdict(list)
        late: dict[str, set[int]] = defaultdict(set)  # Value -> reconnecting workers.
        # The broker may have released the records of a failed worker at any time since its last
        # event: before the worker received its error, and before the run found its end.
        for number in self.failed:
            events = [event[0] for event in self.events if event[-1] == number]
            self.ends[number] = max(events, default=self.ends[number])
        for at, event, value, count, number in sorted(self.events):
            held = holder.get(value)
            if event == "L" and held is not None and held[0] != number:
                continue  # From a worker whose lock had ended.
            last[value] = event, number
            is_reconnecting = self._is_reconnecting(number, at)
            if event == "R":
                if is_reconnecting:
                    late[value].add(number)
                    continue
                if held is not None and held[0] != number and self._lives(*held, at):
                    faults.append(f"{value}: held by {held[0]} and by {number}")
                if value in acked:
                    faults.append(f"{value}: received by {number} after its acknowledgement")
                last_start = max((start for start in self.starts if start < at), default=0)
                before = sum(time_ns > last_start for time_ns in seen[value])
                if count and count < before + 1:
                    faults.append(f"{value}: delivery count {count} after {before} deliveries")
                seen[value].append(at)
                holder[value] = number, at
            else:
                holder.pop(value, None)
            if event == "D" and not is_reconnecting:
                acked[value] = at
        # A worker that was killed may have acknowledged the values that it held last.
        for value in sorted(values - self.done - self.dead):
            event, number = last.get(value, ("none", 0))
            # A client sends the acknowledgements of its reconnection to the next broker, which
            # takes them; a worker that was killed before it said so has no event for it.
            if late[value] & self.ends.keys():
                continue
            if event != "R" or (number not in self.ends and not self.starts):
                faults.append(f"{value}: never acknowledged, last event {event} of {number}")
        return faults

    def history(self, value: str) -> str:
        """Return the events of a value, and the kills and starts of the broker in between."""
        events = [(at, f"{event}{number}") for at, event, name, _, number in self.events]
        events = [
            (at, text)
            for (at, text), event in zip(events, self.events, strict=True)
            if event[2] == value
        ]
        numbers = {event[-1] for event in self.events if event[2] == value}
        events += [(self.ends[number], f"end{number}") for number in numbers & self.ends.keys()]
        first = min((at for at, _ in events), default=0)
        events += [(at, "kill") for at in self.kills if at > first]
        events += [(at, "start") for at in self.starts if at > first]
        return " ".join(f"{(at - first) / 1e9:.2f}:{text}" for at, text in sorted(events)[:30])

    def _is_reconnecting(self, number: int, at: int) -> bool:
        """Return True if the broker was killed shortly before an event of a worker that receives
        ahead and whose acknowledgements have no answer. While the client reconnects, it hands out
        messages of the broker before.
        """
        return number in self.unanswered and any(
            kill < at < start + RECONNECT_NS
            for kill, start in zip(self.kills, self.starts, strict=True)
        )

    def _lives(self, number: int, since: int, now: int) -> bool:
        """Return True if the worker and the broker lived from `since` to `now`. Until a broker is
        ready, clients hand out records of the broker before.
        """
        is_ended = self.ends.get(number, now + 1) <= now
        return not is_ended and not any(since <= start <= now for start in self.starts)


class QueueRun:
    """A broker with workers."""

    def __init__(self, broker: RunningBroker, topic: str, seed: int) -> None:
        self.broker = broker
        self.judge = Judge()
        self.workers: dict[int, Worker] = {}
        self.kills = 0
        self._topic = topic
        self._random = random.Random(seed)
        self._number = 0
        self._readers: list[threading.Thread] = []

    def address(self, kind: str) -> str:
        """Return the broker's address for a kind of worker."""
        address = self.broker.addresses[LISTENER[kind]]
        return {"share": "", "pulsar": "pulsar://", "http": "http://"}[kind] + address

    def start(self, kind: str) -> None:
        """Start a worker."""
        self._number += 1
        command = [sys.executable, "-m", "conformance.queue.worker", kind]
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `_end`)
        process = subprocess.Popen(
            [*command, self.address(kind), self._topic],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdout is not None
        self.workers[self._number] = Worker(kind, process, errors)
        if kind == "pulsar":
            self.judge.unanswered.add(self._number)
        reader = threading.Thread(target=self.judge.read, args=(self._number, process.stdout))
        reader.start()
        self._readers.append(reader)

    def replace_ended(self) -> None:
        """Start a worker for each that has ended."""
        for number, worker in list(self.workers.items()):
            if worker.process.poll() is not None:
                self.judge.failed[number] = f"{worker.kind}: {self._end(number)}"
                self.start(worker.kind)

    def _end(self, number: int) -> str:
        """End a worker; return the last line of its standard error."""
        worker = self.workers.pop(number)
        worker.process.kill()
        worker.process.wait()
        self.judge.ends[number] = time.monotonic_ns()
        with worker.errors as errors:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
        return lines[-1] if lines else "without a text"

    def kill(self) -> None:
        """Kill a worker, or the broker."""
        self.kills += 1
        if self.kills % BROKER_KILLS == 0:
            self.judge.kills.append(time.monotonic_ns())
            self.broker.kill()
            self.broker.start()
            self.judge.starts.append(time.monotonic_ns())
            return
        number = self._random.choice(list(self.workers))
        kind = self.workers[number].kind
        # From here on others may get the records that the worker holds.
        self.judge.ends[number] = time.monotonic_ns()
        self._end_at(number)
        self.start(kind)

    def _end_at(self, number: int) -> None:
        at = self.judge.ends[number]
        self._end(number)
        self.judge.ends[number] = at

    def stop(self) -> None:
        """End all workers."""
        for number in list(self.workers):
            self._end(number)
        for reader in self._readers:
            reader.join()


def produce(broker: RunningBroker, topic: str, count: int) -> set[str]:
    """Fill the topic by producers of three protocols; return the values."""
    values = [f"v{number}" for number in range(count)]
    third = count // 3
    by_kafka, by_pulsar, by_http = values[:third], values[third : 2 * third], values[2 * third :]
    kafka = confluent_kafka.Producer(
        {"bootstrap.servers": broker.addresses["kafka"], "enable.idempotence": True}
    )
    for value in by_kafka:
        while len(kafka) >= UNSENT_MAX:
            kafka.poll(0.1)
        kafka.produce(topic, value, on_delivery=_check_delivery)
        kafka.poll(0)
    kafka.flush()
    client = pulsar.Client(
        f"pulsar://{broker.addresses['pulsar']}",
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for value in by_pulsar:
        producer.send_async(value.encode(), lambda result, _: None)
    producer.flush()
    client.close()
    with httpx.Client(base_url=f"http://{broker.addresses['http']}", timeout=30) as http:
        for first in range(0, len(by_http), HTTP_BATCH):
            messages = [{"value": value} for value in by_http[first : first + HTTP_BATCH]]
            http.post(
                f"/topics/public/default/{topic}", json={"messages": messages}
            ).raise_for_status()
    return set(values)


def backlog(broker: RunningBroker, topic: str) -> int:
    """Return how many records the group has not acknowledged."""
    path = f"http://{broker.addresses['http']}/topics/public/default/{topic}/subscription/{GROUP}/cursor"
    answer = httpx.get(path, timeout=30)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return 1  # No worker has joined yet.
    answer.raise_for_status()
    return int(answer.json()["cursor"]["backlog"])


def _check_delivery(error: object, _: object) -> None:
    if error is not None:
        raise RuntimeError(error)


def prepare(broker: RunningBroker, topic: str) -> None:
    """Create the topics; let the group begin at the first record, with long locks."""
    admin = AdminClient({"bootstrap.servers": broker.addresses["kafka"]})
    topics = [NewTopic(topic, 2, 1), NewTopic(DEAD_LETTERS, 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result()
    settings = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": "60000",
        "errors.deadletterqueue.topic.name": DEAD_LETTERS,
    }
    resource = ConfigResource(
        ConfigResource.Type.GROUP,
        GROUP,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ],
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def dead_letters(broker: RunningBroker) -> set[str]:
    """Return the values in the dead letter topic."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.addresses["kafka"],
            "group.id": "dead-letters",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(DEAD_LETTERS, 0, 0)])
    values: set[str] = set()
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.add(message.value().decode())
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            consumer.close()
            return values
        else:
            raise RuntimeError(error)


def run(records: int, kills: int, seed: int, folder: Path) -> tuple[list[str], str]:
    """Run; return the faults and a line of figures."""
    with RunningBroker(folder, listen={"iggy": "off"}) as broker:
        prepare(broker, TOPIC)
        values = produce(broker, TOPIC, records)
        going = QueueRun(broker, TOPIC, seed)
        begun = quiet_since = time.monotonic()
        try:
            for kind in WORKERS:
                going.start(kind)
            seen, next_kill = 0, begun + KILL_EVERY_S
            while backlog(broker, TOPIC):
                time.sleep(0.1)
                going.replace_ended()
                events = len(going.judge.events)
                if events != seen:
                    seen, quiet_since = events, time.monotonic()
                if time.monotonic() > quiet_since + QUIET_S:
                    break
                if going.kills < kills and time.monotonic() >= next_kill:
                    going.kill()
                    next_kill = time.monotonic() + KILL_EVERY_S
        finally:
            going.stop()
        seconds = time.monotonic() - begun
        going.judge.dead = dead_letters(broker)
        faults = going.judge.verdict(values)
        faults[:SHOWN] = [
            f"{fault}: {going.judge.history(fault.partition(':')[0])}" for fault in faults[:SHOWN]
        ]
    received = sum(event[1] == "R" for event in going.judge.events)
    line = f"{records} records, {received} deliveries, {len(going.judge.dead)} dead letters"
    line += f", {going.kills} kills, {seconds:.0f} s"
    for error, count in Counter(going.judge.failed.values()).most_common(SHOWN):
        line += f"\n{count} workers ended: {error[:200]}"
    return faults, line


def main() -> int:
    """Run, and print the faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="braidlog-") as folder:
        faults, line = run(options.records, options.kills, options.seed, Path(folder))
    text = "\n".join([line, f"{len(faults)} faults", *faults[:SHOWN]])
    print(text)
    if options.report:
        options.report.write_text(f"# One queue\n\n{text}\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
