"""The recorded conversation with a 0.8.2.2 broker, repeated here: same requests, same order.

Answers are compared by meaning: any order of topics and partitions, this broker's address,
compressed sets by their messages. In rows marked quirk a new broker may do better; this broker's
answers stand below.
"""

import zlib

from braidlog.broker.broker import Broker
from braidlog.broker.topics.registry import TopicDefaults
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, message_set, produce
from tests.protocols.kafka.golden import VECTORS, GoldenAnswer, golden_answers
from tests.protocols.kafka.layouts import parse_reply, parse_set
from tests.protocols.kafka.talk import FOO, FOO_NAME, OpenClient

# Their 0.8.2 layouts were never served, and newer clients use other layouts.
KEYS_CLOSED = (11, 12)
# Requests that 0.8.2.2 stored with invalid content, and that this broker refuses: so many records
# in partition 1 replace each, so that the offsets of later rows agree.
REFUSED_HERE = {
    "produce, magic 1 with a v0 body and right CRC: taken as it is": 1,
    "gzip whose inner CRC is wrong: NOT checked, appended": 2,
}
STANDING_IN = {2, 17, 18}  # their offsets
# This broker always has a coordinator: the commit would be kept, but later rows expect no commit.
# Later formats and versions are served, in their own layouts.
NOT_SENT = {
    "commit v1 while there is no coordinator: 15",
    "produce, record batch v2 inside v0: its CRC is not where v0 has it",
    "commit v2: closed",
    "unknown key 16",
    "Heartbeat in the 0.8.2 draft layout",
    "unknown key 18",
    "offset fetch v2: as v1",
}
# 0.8.2.2 keeps the commits of version 0 apart; this broker has a single store, so these commits
# come before this row.
FIRST_OF_VERSION_1 = "offset fetch v1, never committed"
# This broker's answers in rows marked quirk with an answer of another kind or code.
CLOSED_HERE = {"metadata v9 answered in v0 layout"}


async def test_recorded_conversation(broker: Broker, open_client: OpenClient) -> None:
    broker.topics.defaults = TopicDefaults(num_partitions=2)
    for row in golden_answers():
        if row.note in NOT_SENT:
            continue
        if row.note == FIRST_OF_VERSION_1:
            broker.subscriptions.delete(broker.topics.get(FOO_NAME), b"g")
        client = RawKafka(await open_client("kafka"))
        await client.stream.send_all(row.request)
        if row.answer == "silent":
            question = m.ConsumerMetadataRequest(b"g")
            assert isinstance(await client.call(question), m.ConsumerMetadataReply), row.label
            await broker.durability.all_durable()
        elif row.answer == "closed" or row.note in CLOSED_HERE or row.api_key in KEYS_CLOSED:
            assert await client.frame() is None, row.label
        else:
            await check_answer(client, row)
        await client.stream.aclose()
        for _ in range(REFUSED_HERE.get(row.note, 0)):
            stand_in = RawKafka(await open_client("kafka"))
            await stand_in.call(produce(FOO, {1: message_set(b"stand-in")}))


async def check_answer(client: RawKafka, row: GoldenAnswer) -> None:
    assert row.api_key is not None
    frame = await client.frame()
    assert frame is not None, f"{row.label}: closed"
    ours = parse_reply(row.api_key, frame)
    if row.quirk and row.note in OURS:
        assert errors_of(ours[1]) == OURS[row.note], row.label
    elif row.answer:
        theirs = parse_reply(row.api_key, bytes.fromhex(row.answer))
        assert normal(ours) == normal(theirs), row.label


def normal(answer: tuple[int, m.Reply]) -> object:
    """Return an answer without the parts that may differ."""
    correlation_id, reply = answer
    if isinstance(reply, m.ConsumerMetadataReply):
        return correlation_id, reply.error, reply.coordinator.node_id
    if isinstance(reply, m.MetadataReply):
        topics = {
            topic.name: (
                topic.error,
                sorted(topic.partitions, key=lambda partition: partition.index),
            )
            for topic in reply.topics
        }
        return correlation_id, topics
    if isinstance(reply, m.FetchReply):
        fetched = {
            (name, index): (partition.error, partition.high_watermark, content(partition))
            for name, partitions in reply.topics.items()
            for index, partition in partitions.items()
        }
        return correlation_id, fetched
    return correlation_id, reply


def content(fetched: m.Fetched) -> object:
    """Return the bytes of a plain set; for a set with compressed messages, its
    content by offset.
    """
    data = b"".join(bytes(part) for part in fetched.parts)
    entries = parse_set(data)
    if not any(message_bytes[5] & 7 for _, message_bytes in entries):
        return data
    messages: dict[int, bytes] = {}
    for offset, message_bytes in entries:
        if message_bytes[5] & 7:
            messages.update(parse_set(zlib.decompress(message_bytes[14:], 31)))
        else:
            messages[offset] = message_bytes
    return {
        offset: message_bytes
        for offset, message_bytes in messages.items()
        if offset not in STANDING_IN
    }


def errors_of(reply: m.Reply) -> object:
    """Return the error codes in an answer: of its topics, of its partitions, or its own."""
    if isinstance(reply, m.MetadataReply):
        assert reply.brokers, "the broker list is never empty"
        return {topic.name: topic.error for topic in reply.topics}
    if isinstance(reply, m.ConsumerMetadataReply):
        return reply.error
    return {
        (name, index): partition if isinstance(partition, int) else partition.error
        for name, partitions in reply.topics.items()
        for index, partition in partitions.items()
    }


def test_every_difference_is_on_the_page() -> None:
    notes = {row.note for row in golden_answers()}
    drafts = {row.note for row in golden_answers() if row.api_key in KEYS_CLOSED}
    different = drafts | NOT_SENT | CLOSED_HERE | {FIRST_OF_VERSION_1, *REFUSED_HERE, *OURS}
    assert different <= notes
    _, _, table = PAGE.read_text().partition("## Where this differs")
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    listed = {note: row for row, noted in LISTED.items() for note in noted}
    assert set(listed) == different
    for words in LISTED:
        assert sum(words in row for row in rows) == 1, words


PAGE = VECTORS.parents[2] / "docs" / "protocols" / "kafka.md"
# By the words of the page's row: the recorded answers of that row.
LISTED = {
    "Metadata lists this broker always": {
        "fresh broker without topics: the broker list is empty too",
        "auto creation: first answer is 5 (a broker may answer 0 at once)",
    },
    "a group has a coordinator at once": {
        "first ConsumerMetadata: 15",
        "commit v1 while there is no coordinator: 15",
    },
    "acks above 1 count as 1": {
        "produce acks 2, one replica: 7 after the timeout, base offset given, data kept"
    },
    "any replica id reads": {"fetch, replica id of no replica: -1"},
    "one illegal topic name gets error 17": {
        "illegal name beside a good one: 17 for both, no brokers",
        "null topic name: -1",
    },
    "no topic `__consumer_offsets`": {"produce to the offsets topic: 17"},
    "inside compressed sets, and lengths inside messages, are checked": {
        "produce, magic 1 with a v0 body and right CRC: taken as it is",
        "gzip whose inner CRC is wrong: NOT checked, appended",
    },
    "lz4 with the standard header checksum is taken": {"lz4 with the standard header checksum"},
    "commits of version 0 and 1 are in one store": {FIRST_OF_VERSION_1},
    "with an empty group name is taken": {
        "commit v0, empty group name",
        "commit v1, empty group name",
    },
    "to a partition that does not exist": {"offset fetch v0 of it"},
    "keys and versions after 0.8": {
        "produce, record batch v2 inside v0: its CRC is not where v0 has it",
        "commit v2: closed",
        "offset fetch v2: as v1",
        "unknown key 16",
        "unknown key 18",
        "metadata v9 answered in v0 layout",
    },
    "in the layouts of 0.8.2's draft end the connection": {
        "JoinGroup in the 0.8.2 draft layout",
        "Heartbeat in the 0.8.2 draft layout",
    },
}
OURS: dict[str, object] = {
    # The broker lists itself, and a topic exists at once.
    "fresh broker without topics: the broker list is empty too": {},
    "auto creation: first answer is 5 (a broker may answer 0 at once)": {FOO: 0},
    # The broker is the only replica.
    "produce acks 2, one replica: 7 after the timeout, base offset given, data kept": {(FOO, 0): 0},
    "fetch, replica id of no replica: -1": {(FOO, 0): 0},
    # The content of stored messages is checked: other listeners read the messages.
    "produce, magic 1 with a v0 body and right CRC: taken as it is": {(FOO, 1): 2},
    "gzip whose inner CRC is wrong: NOT checked, appended": {(FOO, 1): 2},
    # Either header checksum is accepted; the content has no message, so nothing is appended.
    "lz4 with the standard header checksum": {(FOO, 1): 0},
    # There is always a coordinator.
    "first ConsumerMetadata: 15": 0,
    # Nothing is stored for missing partitions, in any version.
    "offset fetch v0 of it": {(FOO, 77): 3},
    "commit v0, empty group name": {(FOO, 0): 0},
    "commit v1, empty group name": {(FOO, 0): 0},
    # An illegal name does not affect the others.
    "illegal name beside a good one: 17 for both, no brokers": {FOO: 0, b"bad!": 17},
    "null topic name: -1": {None: 17},
    "produce to the offsets topic: 17": {(b"__consumer_offsets", 0): 3},
}
