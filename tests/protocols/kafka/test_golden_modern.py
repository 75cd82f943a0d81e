"""The recorded answers of Kafka 4.3.1, and this broker's to the same requests in the same order."""

from pathlib import Path

import pytest

from braidlog.broker.broker import Broker
from braidlog.broker.topics.registry import TopicDefaults
from braidlog.protocols.kafka.tables import APIS
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.storage.metadata.names import TopicName
from conformance.golden.asking import body_of, frame_of
from conformance.golden.case import TOPIC
from conformance.golden.cases import CASES
from conformance.golden.comparing import compare, read_known
from conformance.golden.talk import GoldenRow, note_member, read_table, requests
from tests.protocols.kafka.golden import VECTORS
from tests.protocols.kafka.talk import OpenClient, second_client

RECORDED = read_table(Path(VECTORS) / "golden-answers-4.3.1.tsv")
KNOWN = read_known(Path(VECTORS) / "differences-4.3.1.tsv")
SIZE_BYTES = 4
# Kafka 4 lists these versions of Produce, and closes the connection.
CLOSED_BY_KAFKA = [(0, 0), (0, 1), (0, 2)]
# Keys of Kafka 4.3.1 that are not served, with the reason.
TRANSACTIONS = dict.fromkeys((24, 25, 26, 27, 28, 65, 66), "transactions are not served")
TOKENS = dict.fromkeys((38, 39, 40, 41), "delegation tokens are not served")
TELEMETRY = dict.fromkeys((71, 72), "clients send no telemetry")
SHARED = dict.fromkeys(range(83, 88), "the state of share groups is in the cursors")
STREAMS = dict.fromkeys((88, 89), "the protocol of Kafka Streams")
CONTROLLERS = dict.fromkeys((64, 80, 81), "controllers of Kafka alone")
NOT_SERVED = TRANSACTIONS | TOKENS | TELEMETRY | SHARED | STREAMS | CONTROLLERS


def test_each_served_key_has_a_case() -> None:
    served = set(APIS) & set(RECORDED.versions)
    assert {case.build(0, {}).KEY for case in CASES} == served


def test_each_key_of_kafka_is_served_up_to_its_newest_version() -> None:
    missing = set(RECORDED.versions) - set(APIS)
    assert missing <= set(NOT_SERVED)
    newest = {key: RECORDED.versions[key][1] for key in APIS if key in RECORDED.versions}
    assert {key: APIS[key].version_max for key in newest} == newest


@pytest.mark.slow
async def test_every_answer_is_kafkas_but_for_the_known_differences(
    broker: Broker, open_client: OpenClient
) -> None:
    broker.topics.defaults = TopicDefaults(num_partitions=1)
    topic = await broker.topics.create(TopicName("public", "default", TOPIC.decode()), 2)
    ids = {TOPIC: id_of(topic)}
    rows = []
    lasting = await second_client(open_client)
    for case, version, body in requests(ids, RECORDED.versions):
        client = lasting if case.stays else await second_client(open_client)
        await client.stream.send_all(frame_of(version, body))
        frame = await client.frame()
        answer = body_of(body.KEY, version, None if frame is None else bytes(frame)[SIZE_BYTES:])
        note_member(ids, body, version, answer)
        rows.append(GoldenRow(body.KEY, version, case.note, answer))
        if client is not lasting:
            await client.stream.aclose()
    differences = list(compare(RECORDED, ids, rows))
    new = [difference for difference in differences if not any(map(difference.is_of, KNOWN))]
    assert not new, "\n".join(map(str, new))
    gone = {known for known in KNOWN if not any(item.is_of(known) for item in differences)}
    assert not gone, "these differences are gone"


def test_each_served_key_and_version_has_a_recorded_answer() -> None:
    """Kafka 4.3.1's answers are here for every pair that both brokers serve."""
    shares = (Path(VECTORS) / "share-answers.tsv").read_text().splitlines()[1:]
    recorded = {(row.key, row.version) for row in RECORDED.rows}
    recorded |= {tuple(map(int, line.split("\t")[:2])) for line in shares}
    served = {
        (key, version)
        for key, (oldest, newest) in RECORDED.versions.items()
        if key in APIS
        for version in range(
            max(oldest, APIS[key].request.VERSIONS[0]), min(newest, APIS[key].version_max) + 1
        )
    }
    assert sorted(served - recorded) == CLOSED_BY_KAFKA
