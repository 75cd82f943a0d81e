"""A group's position and backlog are the same in `braidlog groups show`, Pulsar's stats, Kafka's
OffsetFetch, Iggy's stored offset and HTTP's cursor, whichever protocol moved the position.
"""

import json
import subprocess
import sys
from http.client import HTTPConnection
from typing import Any

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire, message
from conformance.clients.raw.pulsar import PulsarWire
from conformance.position.talk import HttpPlace
from conformance.runner import RAW, Context

CLIENTS = [RAW]
GROUP, COUNT = "shown", 20
COMMAND_S = 120


def run(context: Context) -> None:
    topic = context.topic()
    with KafkaWire(context.address("kafka")) as kafka, IggyWire(context.address("iggy")) as iggy:
        kafka.create(topic)
        kafka.produce(topic, message(None, b"v") * COUNT)
        with PulsarWire(context.address("pulsar")) as pulsar:
            pulsar.subscribe(topic, GROUP)
            pulsar.next_message()
            assert consumers_of(context, topic) == 1
        kafka.commit(GROUP, topic, 5)
        assert read_positions(context, kafka, iggy, topic) == {(5, COUNT - 5)}
        iggy.store_offset(topic, GROUP, 8)
        assert read_positions(context, kafka, iggy, topic) == {(9, COUNT - 9)}
        assert http(context, topic).change("Seek", position="earliest") == 200
        assert iggy.poll_next(topic, 3, GROUP) == [0, 1, 2]
        assert read_positions(context, kafka, iggy, topic) == {(3, COUNT - 3)}


def read_positions(
    context: Context, kafka: KafkaWire, iggy: IggyWire, topic: str
) -> set[tuple[int, int]]:
    """Return the different (position, backlog) pairs of the five views."""
    stored = iggy.stored_offset(topic, GROUP)
    (cursor,) = http(context, topic).read_positions() or [{}]
    assert stored is not None
    (shown,) = groups_show(context, topic)["partitions"]
    backlog = stats(context, topic)["msgBacklog"]
    return {
        (kafka.committed(GROUP, topic), backlog),
        (stored + 1, cursor["backlog"]),
        (shown["position"], shown["backlog"]),
    }


def groups_show(context: Context, topic: str) -> dict[str, Any]:
    """Return the output of `braidlog groups show` about the group on the topic."""
    host, port = context.address("http")
    command = [
        sys.executable,
        "-m",
        "braidlog.broker.cli.main",
        "groups",
        "show",
        GROUP,
        "--topic",
        topic,
    ]
    done = subprocess.run(
        [*command, "--url", f"http://{host}:{port}", "--output", "json"],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=True,
    )
    (group,) = json.loads(done.stdout)
    assert isinstance(group, dict)
    return group


def stats(context: Context, topic: str) -> dict[str, Any]:
    """Return the subscription's stats from Pulsar's admin API."""
    connection = HTTPConnection(*context.address("http"), timeout=COMMAND_S)
    connection.request("GET", f"/admin/v2/persistent/public/default/{topic}/stats")
    subscription = json.loads(connection.getresponse().read())["subscriptions"][GROUP]
    connection.close()
    assert isinstance(subscription, dict)
    return subscription


def consumers_of(context: Context, topic: str) -> int:
    """Return the number of the group's members; Pulsar's stats and HTTP's cursor must agree."""
    consumer_count = len(stats(context, topic)["consumers"])
    assert len(http(context, topic).whole()["consumers"]) == consumer_count
    return consumer_count


def http(context: Context, topic: str) -> HttpPlace:
    """Return the cursor over HTTP."""
    return HttpPlace(context.address("http"), topic, GROUP)
