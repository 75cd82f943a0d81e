"""Brokers over PostgreSQL and SeaweedFS, started by the users' command line."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from conformance.cluster import causes, draining, faults, rolling, running, servers
from conformance.cluster.brokers import command, settings_for
from conformance.cluster.running import shard_owners
from conformance.exports import clustered
from conformance.server import RunningBroker
from tests.waiting import until_seen

pytestmark = [pytest.mark.slow, pytest.mark.clients]


@pytest.fixture
def stores():
    """Yield PostgreSQL and SeaweedFS, both empty."""
    reason = servers.missing()
    if reason is not None:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="braidlog-cluster-"))
    os.chmod(folder, 0o755)
    with servers.Postgres(folder / "pg") as postgres, servers.Seaweed(folder / "s3") as seaweed:
        yield postgres, seaweed
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def settings(stores):
    store_settings = settings_for(*stores, "test")
    assert command(store_settings, "show")[0] == 1
    assert command(store_settings, "init")[0] == 0
    assert "was there" in command(store_settings, "init")[1]
    return [
        *store_settings,
        "shared.round_ms=20",
        "shared.pack_ms=500",
        "shared.delete_after_ms=1000",
        "cluster.lease_ms=3000",
        "cluster.beat_ms=500",
    ]


def node(tmp_path, settings, number):
    listen = dict.fromkeys(("kafka", "iggy", "http"), "127.0.0.1:0")
    return RunningBroker(
        tmp_path / f"node{number}",
        listen=listen,
        others=False,
        settings=[*settings, f"cluster.node_id={number}"],
        environment=servers.KEYS,
    )


class RememberingClient:
    """Produces to a topic, and remembers acknowledged values."""

    def __init__(self, topic):
        self.topic = topic
        self.acked = {}

    def produce(self, broker, count):
        producer = KafkaProducer(bootstrap_servers=broker.addresses["kafka"], acks="all")
        sent = {}
        for _ in range(count):
            value = b"%s-%d" % (self.topic.encode(), len(self.acked) + len(sent))
            sent[value] = producer.send(self.topic, value, partition=0)
        for value, future in sent.items():
            self.acked[future.get(60).offset] = value
        producer.close()

    def commit(self, broker, position):
        with self.consumer(broker) as (consumer, place):
            self._commit(consumer, place, position)

    def go_on(self, broker, position):
        """Check the records and the committed position; produce and commit more."""
        with self.consumer(broker) as (consumer, place):
            consumer.seek_to_beginning(place)
            records_read = {}
            while len(records_read) < len(self.acked):
                for records in consumer.poll(10_000).values():
                    records_read.update((record.offset, record.value) for record in records)
            assert records_read == self.acked and sorted(records_read) == list(
                range(len(records_read))
            )
            assert consumer.committed(place) == position
            self.produce(broker, 30)
            self._commit(consumer, place, position + 10)

    @contextmanager
    def consumer(self, broker):
        """Yield a consumer of the topic's partition, and the partition."""
        consumer = KafkaConsumer(
            bootstrap_servers=broker.addresses["kafka"],
            group_id=f"{self.topic}-readers",
            enable_auto_commit=False,
        )
        place = TopicPartition(self.topic, 0)
        consumer.assign([place])
        yield consumer, place
        consumer.close()

    @staticmethod
    def _commit(consumer, place, position):
        consumer.commit({place: OffsetAndMetadata(position, "", -1)})


def owned(settings, node):
    """Return the number of shards that a node owns."""
    database = dict(setting.split("=", 1) for setting in settings)["shared.database"]
    return list(shard_owners(database).values()).count(node)


def iggy_at_both(addresses):
    """Run `iggy_at_both_child.py` in its own process, which its libraries may abort."""
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "iggy_at_both_child.py", *addresses],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def http_at_both(addresses):
    """Ask each broker about the other's topics: requests are forwarded with their bodies."""
    with httpx.Client(timeout=60) as client:
        for number in range(4):
            path = f"/api/v1/topics/public/default/h{number}"
            assert client.put(f"http://{addresses[number % 2]}{path}").status_code == 201
            for address in addresses:
                sent = client.post(
                    f"http://{address}/topics/public/default/h{number}",
                    json={"messages": [{"payload": "x" * 100_000}]},
                )
                assert sent.status_code == 200, sent.text
            shown = [client.get(f"http://{address}{path}").json() for address in addresses]
            assert shown[0] == shown[1] and shown[0]["partitions"]
            missing = client.get(f"http://{addresses[0]}{path}nope")
            assert missing.status_code == 404 and missing.json()["code"] == "topic_not_found"


def groups_at_both(addresses, topics):
    """Check admin tools on a group with positions on topics of both brokers."""
    places = [TopicPartition(topic, 0) for topic in topics]
    for address in addresses:
        consumer = KafkaConsumer(
            bootstrap_servers=address, group_id="gone", enable_auto_commit=False
        )
        consumer.assign(places)
        consumer.commit({place: OffsetAndMetadata(7, "", -1) for place in places})
        admin = KafkaAdminClient(bootstrap_servers=address)
        assert "gone" in {group["group_id"] for group in admin.list_groups()}
        shown = admin.describe_groups(["gone", "never"])
        assert {name: group["group_state"] for name, group in shown.items()} == {
            "gone": "Empty",
            "never": "Dead",
        }
        assert dict(admin.delete_groups(["gone"])) == {"gone": "OK"}
        assert [consumer.committed(place) for place in places] == [None] * len(places)
        assert dict(admin.delete_groups(["gone"])) != {"gone": "OK"}
        admin.close()
        consumer.close()


def test_two_brokers_share_topics_and_follow_each_other(tmp_path, settings):
    clients = [RememberingClient(f"orders{number}") for number in range(3)]
    first, second = (node(tmp_path, settings, number) for number in (1, 2))

    def everything_is_there(broker, position):
        for client in clients:
            client.go_on(broker, position)

    try:
        first.start()
        for client in clients:
            client.produce(first, 30)
            client.commit(first, 10)
        second.start()
        until_seen(
            lambda: owned(settings, 2) > 20 and owned(settings, 1) + owned(settings, 2) == 65
        )
        everything_is_there(second, 10)
        iggy_at_both([first.addresses["iggy"], second.addresses["iggy"]])
        kafka = [first.addresses["kafka"], second.addresses["kafka"]]
        groups_at_both(kafka, [client.topic for client in clients])
        http_at_both([first.addresses["http"], second.addresses["http"]])
        first.kill()
        until_seen(lambda: owned(settings, 2) == 65)
        everything_is_there(second, 20)

        first.start()
        until_seen(lambda: owned(settings, 1) > 20)
        assert second.stop() == 0
        until_seen(lambda: owned(settings, 1) == 65)
        everything_is_there(first, 30)

        second.start()
        until_seen(lambda: owned(settings, 2) > 20)
        first.signal(signal.SIGSTOP)
        until_seen(lambda: owned(settings, 2) == 65)
        everything_is_there(second, 40)
        first.signal(signal.SIGCONT)
        assert first.wait() == 1, "its session was ended meanwhile: it stops"
        everything_is_there(second, 50)
        first.start()
        until_seen(lambda: owned(settings, 1) > 20)
        code, output = command(settings, "drain", "2")
        assert code == 0 and owned(settings, 1) == 65, output
        everything_is_there(second, 60)
        assert first.stop() == second.stop() == 0
    finally:
        for broker in (first, second):
            if broker.is_running():
                broker.signal(signal.SIGCONT)
            broker.kill()
    code, output = command(settings, "verify", "--deep")
    assert code == 0, output
    code, output = command(settings, "sweep", "--yes")
    assert code == 0, output
    assert command(settings, "verify", "--deep")[0] == 0
    assert "65 of 65 shards have no owner" in command(settings, "show")[1]


@pytest.fixture(scope="module")
def cluster():
    """Yield three serving brokers."""
    reason = servers.missing()
    if reason is not None:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="braidlog-cluster-"))
    with running.RunningCluster(folder) as started:
        started.await_all()
        yield started
    shutil.rmtree(folder, ignore_errors=True)


def test_a_drain_is_no_error_to_stock_clients(cluster):
    assert not draining.drain(cluster, 2).errors
    assert command(cluster.settings, "drain", "2", "--undo")[0] == 0


def test_a_clean_stop_is_no_error_to_stock_clients(cluster):
    assert not draining.stop(cluster, 1).errors
    cluster.await_all()


def test_an_export_through_any_broker_has_all_records_while_topics_move(cluster):
    assert clustered.moved_export(cluster) == clustered.RECORDS * len(clustered.TOPICS)


def test_no_acknowledged_record_is_lost_by_kills_cuts_and_hangs(cluster):
    run = faults.FaultsRun(cluster, topics=4, seed=1, pause_s=0.1)
    done = run.run(causes.SHORT[::3])  # `python -m conformance.cluster.faults` has all of them.
    assert not done.faults
    assert done.acknowledged > 100 and done.records >= done.acknowledged
    assert not faults.after(cluster)


def test_rolling_restarts_store_each_value_of_idempotent_producers_once(cluster, monkeypatch):
    for name, value in servers.KEYS.items():
        monkeypatch.setenv(name, value)
    faults = rolling.run(
        cluster,
        ["librdkafka", "kafka-python"],
        topics=6,
        restarts=3,
        how="stop",
        pause_ms=12,
    )
    assert not faults
