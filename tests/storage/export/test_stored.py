"""A cluster's store as the place of a log: its partitions, schemas and rows, and refusals."""

import pytest

from braidlog.storage.directory.directory import NewPartition
from braidlog.storage.export.places import BadPlace, open_log, shown, store_place
from braidlog.storage.export.readers import PartitionState
from braidlog.storage.export.registered import AVRO, RegisteredSchema
from braidlog.storage.export.rows import RangeRows
from braidlog.storage.export.stored import DATABASE_VARIABLE, StoreReader
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.columns.records import ColumnTarget
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from braidlog.storage.log.segment_header import KIND_CATALOGUE
from braidlog.storage.log.settings import LogSettings
from braidlog.storage.metadata.catalogue_records import SchemaMeta
from braidlog.storage.metadata.names import parse_topic
from braidlog.storage.shared.catalogue import SharedCatalogue
from braidlog.storage.shared.journal import LedgerJournal
from braidlog.storage.shared.ledger import LedgerUnanswered
from braidlog.storage.shared.publisher import Patience
from braidlog.storage.shared.reader import StoreLook
from tests.storage.shared.memory import MemoryLedger, MemoryStore
from tests.storage.shared.shared_dirs import SHARDS, Life, SharedStore

TOPICS = {"public/default/a": [3, 1], "public/default/b": [2]}
AVRO_TYPE = 4


class ExportedBroker(Life):
    """A life with a catalogue, and logs of its topics."""

    def __init__(self, store):
        super().__init__(store, partition_id=9)
        self.shared = SharedCatalogue(SHARDS)
        self.shared.own(LedgerJournal(0, KIND_CATALOGUE, [], self.committer), 1)
        self.catalogue = self.shared.catalogue
        self.logs = {}
        for topic, numbers in TOPICS.items():
            name = parse_topic(topic)
            self.catalogue.create_topic(name, numbers, partitioned=len(numbers) > 1, created_us=1)
            for index, number in enumerate(numbers):
                named = NewPartition(number, topic, index)
                self.logs[number] = self.directory.open_of_topic(
                    named, LogSettings(), self.committer
                )
        self.committer.commit()

    def produce(self, number, *values):
        log = self.logs[number]
        codec = codec_for(BodyFormat.KAFKA_BATCHES)
        base = log.log_end_offset
        body = codec.encode(
            [Record(base + at, 5, value=value) for at, value in enumerate(values)], base
        )
        log.append([body], codec.inspect(body), body_format=BodyFormat.KAFKA_BATCHES, append_us=7)
        self.committer.commit()


@pytest.fixture
def store(tmp_path):
    return SharedStore(tmp_path)


@pytest.fixture
def broker(store):
    life = ExportedBroker(store)
    yield life
    life.stop()


def reader(store):
    return StoreReader(StoreLook(store.ledger, store.objects))


def values(log, state):
    with log.open(state.topic, state.index, state.partition_id) as part:
        target = ColumnTarget(state.partition_id, state.index)
        rows = RangeRows(part, 0, state.watermark, target, lambda bad: None)
        return [value for batch in rows for value in batch["value"].to_pylist()]


def test_partitions_come_from_the_catalogue_by_topic_and_index(store, broker):
    log = reader(store)
    empty = [
        (partition.topic, partition.partition_id, partition.index, partition.watermark)
        for partition in log.partitions()
    ]
    assert empty == [
        ("public/default/a", 3, 0, 0),
        ("public/default/a", 1, 1, 0),
        ("public/default/b", 2, 0, 0),
    ]
    broker.produce(1, b"x", b"y")
    broker.produce(2, b"z")
    broker.pack()
    broker.produce(1, b"in a round")
    first, second, third = log.partitions()
    assert (first.watermark, first.size_bytes) == (0, 0)
    assert (second.watermark, third.watermark) == (
        3,
        1,
    ) and second.size_bytes > third.size_bytes > 0
    assert log.partitions(lambda topic: topic.endswith("/b")) == [third]
    assert values(log, first) == []
    assert values(log, second) == [b"x", b"y", b"in a round"]
    assert values(log, third) == [b"z"]


def test_a_partition_without_topic_is_deleted(store, broker):
    with pytest.raises(FileNotFoundError, match="public/default/a partition 0 is gone"):
        reader(store).open("public/default/a", 0, 77)
    with pytest.raises(FileNotFoundError):
        reader(store).open("public/default/none", 0, 3)
    assert isinstance(reader(store).partitions()[0], PartitionState)


def test_schemas_come_from_the_topics_shards(store, broker):
    topic = "public/default/a"
    name = parse_topic(topic)
    shard = broker.shared.shard(name)
    broker.shared.hold(shard, LedgerJournal(shard, KIND_CATALOGUE, [], broker.committer))
    meta = broker.catalogue.topic(name)
    broker.catalogue.add_schema(meta.topic_id, SchemaMeta(AVRO_TYPE, "a", b'"long"', {}))
    broker.committer.commit()
    schemas = reader(store).schemas([topic, "public/default/none"])
    assert schemas == {topic: [RegisteredSchema(AVRO, '"long"')]}


def test_an_unreachable_store_is_an_os_error(store):
    class NoJournalLedger(MemoryLedger):
        def journal(self, shard, kind, after=0):
            raise LedgerUnanswered("PostgreSQL: nobody there")

    def give_up(seconds):
        raise LedgerUnanswered("PostgreSQL: nobody there")

    silent = NoJournalLedger()
    silent.init(store.ledger.cluster())
    log = StoreReader(StoreLook(silent, store.objects, lambda: Patience(give_up)))
    with pytest.raises(OSError, match="nobody there"):
        log.partitions()
    with pytest.raises(OSError, match="cluster init"):
        StoreReader(StoreLook(MemoryLedger(), MemoryStore())).partitions()


@pytest.mark.parametrize(
    "database",
    [
        "postgresql://braidlog:secret@db/braidlog",
        "postgresql://db/braidlog?user=braidlog&password=secret",
        "host=db password = secret",
        "host=db sslpassword=secret",
    ],
)
def test_a_password_is_no_part_of_a_place(database):
    with pytest.raises(BadPlace, match="PGPASSWORD") as caught:
        store_place("s3://bucket/prefix", database)
    assert "secret" not in str(caught.value)


def test_a_place_shows_only_the_store():
    place = store_place("s3://b/p", "host=db port=5432 passfile=/run/pass", "http://s3:8333")
    assert place.startswith("s3://b/p?") and shown(place) == "s3://b/p"
    assert store_place("file:///srv/store") == "file:///srv/store"
    assert store_place("s3://b/p", "postgresql://me@db:5432/x").startswith("s3://b/p?database=")
    assert shown("http://:token@host:8080") == "http://host:8080"
    assert shown("data/?") == "data/?"
    with pytest.raises(BadPlace, match="s3://BUCKET/PREFIX"):
        store_place("bucket/prefix")


def test_a_missing_database_is_an_error_before_any_request(monkeypatch):
    monkeypatch.delenv(DATABASE_VARIABLE, raising=False)
    with pytest.raises(OSError, match=DATABASE_VARIABLE):
        open_log("s3://b/p")


def test_a_place_is_created_without_requests_or_folders(tmp_path):
    pytest.importorskip("psycopg", reason="the extra `shared` is not installed")
    pytest.importorskip("obstore", reason="the extra `shared` is not installed")
    folder = tmp_path / "nowhere"
    try:
        open_log(store_place(f"file://{folder}", "postgresql://127.0.0.1:1/x?connect_timeout=2"))
    except OSError as error:
        assert str(folder) in str(error)
    assert not folder.exists()
