"""Requests about topics and their partitions: good, bad, and sent by mistake by admin tools."""

from collections.abc import Iterator, Sequence
from typing import Final

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    metadata,
)
from conformance.golden.asking import MISSING_ID
from conformance.golden.case import MISSING, TOPIC, Build, Case, Ids, same

NOT_TEXT: Final = b"\xff\xfe"
LONG_NAME: Final = b"n" * 250
INT32_MAX: Final = 2**31 - 1


def _metadata(*names: bytes | None, by_id: bool = False) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        topics = [
            metadata.MetadataRequestTopic(name=name)
            if not by_id
            else metadata.MetadataRequestTopic(topic_id=ids.get(name or b"", MISSING_ID), name=None)
            for name in names
        ]
        return metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    return build


def _create(name: str, count: int = 1, replicas: int = 1, **configs: str) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        topic = create_topics.CreatableTopic(
            name=f"{name}-{version}".encode() if name == "made" else name.encode(),
            num_partitions=count,
            replication_factor=replicas,
            configs=[
                create_topics.CreatableTopicConfig(
                    name=key.replace("_", ".").encode(), value=value.encode()
                )
                for key, value in configs.items()
            ],
        )
        return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)

    return build


def _delete_topic(name: str) -> Build:
    def build(version: int, ids: Ids) -> Struct:
        text = f"{name}-{version}".encode() if name == "made" else name.encode()
        return delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=text)],
            topic_names=[text],
            timeout_ms=5000,
        )

    return build


def _topics() -> Iterator[Case]:
    yield Case("metadata", _metadata(TOPIC))
    yield Case("metadata of a missing topic", _metadata(MISSING), since=4)
    yield Case("metadata of an illegal name", _metadata(b"a b"), since=4)
    yield Case("metadata by id", _metadata(TOPIC, by_id=True), since=12)
    yield Case("metadata of a missing id", _metadata(MISSING, by_id=True), since=12)
    for names in ((TOPIC,), (MISSING,)):
        wanted = [describe_topic_partitions.TopicRequest(name=name) for name in names]
        body: Struct = describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=wanted, response_partition_limit=1, cursor=None
        )
        yield Case(f"partitions of {names[0].decode()}", same(body))
    yield Case("create", _create("made"))
    yield Case("create what exists", _create("golden"))
    yield Case("create without partitions", _create("zero", 0))
    yield Case("create with three replicas", _create("three", 1, 3))
    yield Case("create an illegal name", _create("a b"))
    yield Case("create with an unknown setting", _create("bad", no_such="1"))
    yield Case("create with a nonsense value", _create("bad", retention_ms="soon"))
    yield Case("create with a nonsense type of time", _create("bad", message_timestamp_type="Now"))
    yield Case("create with a nonsense compression", _create("bad", compression_type="rar"))
    yield Case("delete", _delete_topic("made"))
    yield Case("delete a missing topic", _delete_topic("missing"))
    for note, name, count in (("fewer", TOPIC, 1), ("of a missing topic", MISSING, 5)):
        grown = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
        body = create_partitions.CreatePartitionsRequest(topics=[grown], timeout_ms=1000)
        yield Case(f"partitions, {note}", same(body))


def _creation(*topics: create_topics.CreatableTopic, checked: bool = False) -> Build:
    return same(
        create_topics.CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=checked)
    )


def _topic(
    name: bytes = b"refused",
    count: int = 1,
    replicas: int = 1,
    *,
    at: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Sequence[tuple[bytes, bytes | None]] = (),
) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=replicas,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in at
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs
        ],
    )


def _creations() -> Iterator[Case]:
    yield Case("create a name twice", _creation(_topic(), _topic()))
    yield Case("create nothing", _creation())
    for count in (-1, -5, INT32_MAX):
        yield Case(f"check {count} partitions", _creation(_topic(count=count), checked=True), 1)
    for replicas in (-1, 0, -5, 32767):
        topic = _topic(replicas=replicas)
        yield Case(f"check {replicas} replicas", _creation(topic, checked=True), 1)
    for name in (b"", b".", b"..", LONG_NAME):
        note = f"check a name of {len(name)} characters, {name[:2].decode()!r}"
        yield Case(note, _creation(_topic(name), checked=True), 1)
    yield Case("check what exists", _creation(_topic(TOPIC), checked=True), 1)
    for note, count, places in (
        ("on a missing broker", -1, [(0, [7])]),
        ("beside a number of partitions", 1, [(0, [1])]),
        ("with a gap", -1, [(0, [1]), (2, [1])]),
        ("of a partition twice", -1, [(0, [1]), (0, [1])]),
        ("without brokers", -1, [(0, [])]),
        ("on a broker twice", -1, [(0, [1, 1])]),
        ("of a negative partition", -1, [(-1, [1])]),
        ("as usual", -1, [(0, [1])]),
    ):
        topic = _topic(count=count, replicas=-1, at=places)
        yield Case(f"check an assignment {note}", _creation(topic, checked=True), 1)
    for key, value in (
        (b"retention.ms", None),
        (b"retention.ms", b""),
        (b"retention.ms", NOT_TEXT),
        (b"retention.ms", b"-2"),
        (b"max.message.bytes", b"-1"),
        (b"max.compaction.lag.ms", b"0"),
        (b"message.timestamp.after.max.ms", b"-1"),
        (b"min.insync.replicas", b"0"),
        (b"flush.messages", b"0"),
        (b"cleanup.policy", b"compact,delete"),
        (b"cleanup.policy", b"shred"),
        (b"", b"1"),
        (NOT_TEXT, b"1"),
    ):
        topic = _topic(configs=[(key, value)])
        note = f"check the setting {key.decode(errors='replace')} of {value!r}"
        yield Case(note, _creation(topic, checked=True), 1)
    topic = _topic(configs=[(b"retention.ms", b"1"), (b"retention.ms", b"2")])
    yield Case("check a setting twice", _creation(topic, checked=True), 1)


def _mistaken_deletions() -> Iterator[Case]:
    named = delete_topics.DeleteTopicState(name=b"missing")
    twice = delete_topics.DeleteTopicsRequest(
        topics=[named, named], topic_names=[b"missing"] * 2, timeout_ms=5000
    )
    yield Case("delete a name twice", same(twice))
    yield Case("delete nothing", same(delete_topics.DeleteTopicsRequest()))

    def by_id(version: int, ids: object) -> Struct:
        states = [delete_topics.DeleteTopicState(name=None, topic_id=bytes(range(16)))]
        return delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=5000)

    yield Case("delete a missing id", by_id, since=6)
    both = delete_topics.DeleteTopicState(name=b"missing", topic_id=bytes(range(16)))
    neither = delete_topics.DeleteTopicState(name=None)
    for note, state in (("both a name and an id", both), ("neither", neither)):
        request = delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=5000)
        yield Case(f"delete {note}", same(request), since=6)


def _growths() -> Iterator[Case]:
    def grown(count: int, places: Sequence[Sequence[int]] | None = None) -> Struct:
        return create_partitions.CreatePartitionsTopic(
            name=TOPIC,
            count=count,
            assignments=None
            if places is None
            else [create_partitions.CreatePartitionsAssignment(broker_ids=at) for at in places],
        )

    for note, topics in (
        ("of a name twice", [grown(3), grown(3)]),
        ("as many", [grown(2)]),
        ("none", [grown(0)]),
        ("a negative number", [grown(-1)]),
        ("on a missing broker", [grown(3, [[7]])]),
        ("without a broker", [grown(3, [[]])]),
        ("with too few assignments", [grown(4, [[1]])]),
        ("with too many assignments", [grown(3, [[1], [1]])]),
        ("on a broker twice", [grown(3, [[1, 1]])]),
        ("with no assignments", [grown(3, [])]),
    ):
        request = create_partitions.CreatePartitionsRequest(
            topics=topics, timeout_ms=1000, validate_only=True
        )
        yield Case(f"check partitions, {note}", same(request))


TOPIC_CASES: Final = tuple(_topics())
REFUSED_TOPIC_CASES: Final = (*_creations(), *_mistaken_deletions(), *_growths())
