"""Readers of a group in all protocols at once: every tool shows the same members and the same
backlog.
"""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from conformance.clients.raw.iggy import IggyWire, identifier, text8
from conformance.server import RunningBroker

pulsar = pytest.importorskip("pulsar", reason="pulsar-client is not installed")
kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
kafka_admin = pytest.importorskip("kafka.admin", reason="kafka-python is not installed")

pytestmark = [pytest.mark.clients, pytest.mark.slow]

TOPIC, GROUP, PARTITIONS, RECORDS = "shared", "everybody", 2, 10
GET_GROUP, GET_GROUPS, CREATE_GROUP, JOIN_GROUP, LEAVE_GROUP = 600, 601, 602, 604, 605
PLACE = identifier("default") + identifier(TOPIC)
GROUP_HEAD = struct.Struct("<IIIB")  # id, partitions, members, length of the name
MEMBER_HEAD = struct.Struct("<II")  # id, partitions
SUBSCRIPTION = f"/topics/public/default/{TOPIC}/subscription/{GROUP}"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=60) as client:
        yield client


class Tools:
    """Each protocol's tools for the group."""

    def __init__(self, broker: RunningBroker, http: httpx.Client, iggy: IggyWire) -> None:
        self._broker = broker
        self._http = http
        self._iggy = iggy
        self._admin = kafka_admin.KafkaAdminClient(bootstrap_servers=broker.addresses["kafka"])

    def members(self) -> dict[str, set[str]]:
        """Return the names of the members, by tool."""
        cursor = self._http.get(f"{SUBSCRIPTION}/cursor").json()["cursor"]
        described = self._admin.describe_groups([GROUP])[GROUP]["members"]
        stats = self._stats()
        return {
            "groups show": {member["name"] for member in self._shown()["members"]},
            "stats": {consumer["consumerName"] for consumer in stats["consumers"]},
            "cursor": {consumer["name"] for consumer in cursor["consumers"]},
            "describe": {member["member_id"] for member in described},
        }

    def partitions(self) -> dict[str, list[list[int]]]:
        """Return the partitions of the members, by tool."""
        described = self._admin.describe_groups([GROUP])[GROUP]["members"]
        return {
            "groups show": sorted(member["partitions"] for member in self._shown()["members"]),
            "describe": sorted(
                part["partitions"]
                for member in described
                for part in member["member_assignment"]["assigned_partitions"]
            ),
            "iggy": sorted(self._iggy_members()),
        }

    def backlogs(self) -> set[int]:
        """Return the different backlogs of all tools."""
        cursor = self._http.get(f"{SUBSCRIPTION}/cursor").json()["cursor"]
        ends = {kafka.TopicPartition(TOPIC, index): RECORDS for index in range(PARTITIONS)}
        listed = getattr(self._admin, "list_group_offsets", None)
        offsets = (listed or self._admin.list_consumer_group_offsets)(
            {GROUP: None} if listed else GROUP
        )
        positions = offsets[GROUP] if listed else offsets
        lag = sum(end - max(positions[place].offset, 0) for place, end in ends.items())
        return {self._shown()["backlog"], self._stats()["msgBacklog"], cursor["backlog"], lag}

    def _shown(self) -> Any:
        command = [sys.executable, "-m", "braidlog.broker.cli.main", "groups", "show", GROUP]
        command += ["--topic", TOPIC, "--url", self._broker.url, "--output", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        (shown,) = json.loads(done.stdout)
        return shown

    def _stats(self) -> Any:
        path = f"/admin/v2/persistent/public/default/{TOPIC}/partitioned-stats"
        return self._http.get(path).json()["subscriptions"][GROUP]

    def _iggy_members(self) -> list[list[int]]:
        answer = self._iggy.ok(GET_GROUP, PLACE + identifier(GROUP))
        _, partitions, count, size = GROUP_HEAD.unpack_from(answer)
        assert partitions == PARTITIONS
        pos, members = GROUP_HEAD.size + size, []
        while pos < len(answer):
            _, owned = MEMBER_HEAD.unpack_from(answer, pos)
            pos += MEMBER_HEAD.size
            members.append([number - 1 for number in struct.unpack_from(f"<{owned}I", answer, pos)])
            pos += 4 * owned
        assert len(members) == count
        return members


def test_every_tool_shows_the_same_members_and_backlog(
    broker: RunningBroker, http: httpx.Client
) -> None:
    body = {"partitions": PARTITIONS}
    assert http.put(f"/api/v1/topics/public/default/{TOPIC}", json=body).status_code == 201
    messages = [{"value": "v", "partition": at % PARTITIONS} for at in range(RECORDS * PARTITIONS)]
    http.post(f"/topics/public/default/{TOPIC}", json={"messages": messages}).raise_for_status()
    address = broker.addresses["kafka"]
    with IggyWire(broker.address("iggy")) as iggy:
        member = kafka.KafkaConsumer(
            TOPIC, group_id=GROUP, bootstrap_servers=address, enable_auto_commit=False
        )
        while not member.assignment():
            member.poll(100)
        client = pulsar.Client(
            f"pulsar://{broker.addresses['pulsar']}",
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        shared = pulsar.ConsumerType.Shared
        consumer = client.subscribe(
            TOPIC,
            GROUP,
            shared,
            consumer_name="of-pulsar",
            initial_position=pulsar.InitialPosition.Earliest,
        )
        joins = {"type": "Shared", "initial_position": "Earliest"}
        reader = http.post(SUBSCRIPTION, json=joins).json()
        fetch = f"{SUBSCRIPTION}/consumer/{reader['id']}"
        http.get(f"{fetch}/messages", params={"timeout": 1}).raise_for_status()
        iggy.ok(CREATE_GROUP, PLACE + struct.pack("<I", 7) + text8(GROUP))
        iggy.ok(JOIN_GROUP, PLACE + identifier(GROUP))

        tools = Tools(broker, http, iggy)
        members = tools.members()
        everybody = members["groups show"]
        assert len(everybody) == 4
        assert {"of-pulsar", reader["name"]} < everybody
        assert any(name.startswith("kafka-python") for name in everybody)
        assert set(map(frozenset, members.values())) == {frozenset(everybody)}
        assert set(map(str, tools.partitions().values())) == {str([[0, 1]] * 4)}

        place = kafka.structs.OffsetAndMetadata(4, "", -1)
        member.commit({kafka.TopicPartition(TOPIC, index): place for index in range(PARTITIONS)})
        assert tools.backlogs() == {(RECORDS - 4) * PARTITIONS}

        iggy.ok(LEAVE_GROUP, PLACE + identifier(GROUP))
        http.delete(fetch).raise_for_status()
        member.close()
        consumer.close()
        client.close()
        assert set(map(frozenset, tools.members().values())) == {frozenset()}
