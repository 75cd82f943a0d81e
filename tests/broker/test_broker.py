"""A broker over its data directory: starts, restarts, retention, and the effect of a failing disk
on its listeners.
"""

import errno

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import load
from braidlog.broker.process import serve_listeners
from braidlog.broker.server.listener import Listener
from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.errors import DamagedLog, DirectoryLocked, StorageFailed
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.metadata.names import parse_topic
from tests.broker.records import append, make_partition, read_values
from tests.broker.server.echo import EchoAdapter, EchoSession, framed, receive_all, receive_frame
from tests.storage.files_twins import FailingDisk
from tests.waiting import until


def config_for(folder, **settings):
    flags = [("data_dir", str(folder), "test")]
    flags += [(name.replace("__", "."), value, "test") for name, value in settings.items()]
    return load(file="/dev/null", environment={}, flags=flags)


async def test_all_data_survives_clean_and_unclean_stops(tmp_path):
    for clean in (True, False, True):
        broker = Broker.open(config_for(tmp_path / "data"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.run)
            topic = broker.topics.find(parse_topic("t"))
            partition = topic.partitions[0] if topic else (await make_partition(broker))
            before = partition.high_watermark
            await append(broker, partition, "kafka", [b"%d" % before])
            subscription = broker.subscriptions.open(broker.topics.get(parse_topic("t")), b"group")
            subscription.commit(0, before + 1)
            await broker.durability.all_durable()
            records, _ = await read_values(partition, "kafka", 0, bytes_max=1 << 20)
            assert records == [(offset, b"%d" % offset) for offset in range(before + 1)]
            nursery.cancel_scope.cancel()
        if clean:
            broker.close()
        else:
            broker.abandon()
    broker = Broker.open(config_for(tmp_path / "data"))
    topic = broker.topics.get(parse_topic("t"))
    assert broker.subscriptions.get(topic, b"group").position(0) == 3
    broker.close()


async def test_a_directory_has_a_single_broker(tmp_path):
    first = Broker.open(config_for(tmp_path))
    with pytest.raises(DirectoryLocked):
        Broker.open(config_for(tmp_path))
    first.close()
    Broker.open(config_for(tmp_path)).close()


async def test_unknown_folders_are_set_aside_and_their_numbers_not_reused(tmp_path):
    broker = Broker.open(config_for(tmp_path))
    known = (await make_partition(broker)).partition_id
    broker.close()
    (tmp_path / "partitions" / "77").mkdir()
    broker = Broker.open(config_for(tmp_path))
    assert (tmp_path / "set-aside" / "77").is_dir()
    assert broker.topics.get(parse_topic("t")).partitions[0].partition_id == known
    assert (await make_partition(broker, "u")).partition_id > 77
    broker.close()


async def test_a_missing_folder_of_a_known_topic_is_damage_and_frees_the_lock(tmp_path):
    broker = Broker.open(config_for(tmp_path))
    partition_id = (await make_partition(broker)).partition_id
    broker.close()
    folder = tmp_path / "partitions" / str(partition_id)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(DamagedLog, match="missing"):
        Broker.open(config_for(tmp_path))
    (tmp_path / "elsewhere").rename(folder)
    Broker.open(config_for(tmp_path)).close()


@pytest.mark.slow
async def test_retention_drops_old_segments_while_the_broker_runs(autojump_clock, tmp_path):
    settings = {"log__segment_bytes": "64KiB", "log__retention_bytes": "100KiB"}
    broker = Broker.open(config_for(tmp_path, **settings))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        partition = await make_partition(broker)
        for _ in range(20):
            await append(broker, partition, "kafka", [b"x" * 30_000])
        await until(lambda: partition.log_start_offset, step_s=30)
        assert partition.log_start_offset < partition.high_watermark == 20
        nursery.cancel_scope.cancel()
    broker.close()


class AppendingSession(EchoSession):
    """Answers a frame when its bytes are stored and durable."""

    def __init__(self, broker, connection):
        super().__init__(connection)
        self.broker = broker

    async def handle(self, frame):
        broker = self.broker
        partition = (await broker.topics.auto_create(parse_topic("t"))).partitions[0]
        appended = partition.append(
            [frame], BodyInfo(1), body_format=999, append_us=broker.now_us()
        )
        self.connection.outbox.answer([framed(b"stored")], appended.ticket)


class AppendingAdapter(EchoAdapter):
    def open_session(self, broker, connection, options):
        return AppendingSession(broker, connection)


def appending_listener():
    return Listener("store", "store", AppendingAdapter(), None, ("127.0.0.1", 0), None)


async def run_listeners(broker, listener, client_task):
    """Serve a listener while `client_task` runs; raise the error that ended the broker."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)

        async def client():
            await broker.ready.wait()
            await client_task(listener.bound)

        nursery.start_soon(client)
        await serve_listeners(broker, [listener], lambda: None)
        await broker.durability.all_durable()
        nursery.cancel_scope.cancel()


async def test_a_failed_sync_stops_the_broker_and_sends_no_waiting_answer(tmp_path):
    disk = FailingDisk()
    config = config_for(tmp_path)
    broker = Broker(config, DataDir.open(tmp_path, LocalFiles(tmp_path, disk)))
    received = []

    async def client(address):
        stream = await trio.open_tcp_stream(*address)
        await stream.send_all(framed(b"one"))
        received.append(await receive_frame(stream))
        for name in ("sync_data", "sync_file_system", "sync_folder"):
            disk.fail(name, errno.EIO)
        with trio.CancelScope(shield=True):  # must see the end, even if other tasks are cancelled
            await stream.send_all(framed(b"two"))
            received.append(await receive_all(stream))

    with pytest.raises(BaseExceptionGroup) as caught:
        await run_listeners(broker, appending_listener(), client)
    assert caught.group_contains(StorageFailed, match="Input/output error", depth=None)
    assert received == [b"stored", b""]
    broker.abandon()
    broker = Broker.open(config)
    assert broker.topics.get(parse_topic("t")).partitions[0].high_watermark >= 1
    broker.close()


async def test_stopping_answers_started_requests_and_closes(tmp_path):
    broker = Broker.open(config_for(tmp_path))
    received = []

    async def client(address):
        stream = await trio.open_tcp_stream(*address)
        await stream.send_all(framed(b"one") * 500)
        received.append(await receive_frame(stream))
        broker.stop()
        received.append(await receive_all(stream))
        await stream.aclose()

    listener = appending_listener()
    await run_listeners(broker, listener, client)
    answers = received[1].count(framed(b"stored")) + 1
    assert received[1].endswith(framed(b"goodbye"))
    assert broker.topics.get(parse_topic("t")).partitions[0].high_watermark == answers
    assert listener.socket is None
    broker.close()


async def test_connections_that_exceed_the_grace_period_are_ended(autojump_clock, tmp_path):
    broker = Broker.open(config_for(tmp_path, shutdown__grace_s="3s"))

    async def client(address):
        stream = await trio.open_tcp_stream(*address)
        await stream.send_all(framed(b"W"))
        await until(lambda: adapter.sessions and adapter.sessions[0].frames)
        begun = trio.current_time()
        broker.stop()
        assert await receive_all(stream) == framed(b"goodbye")
        assert adapter.sessions[0].closed_at - begun == pytest.approx(3)

    adapter = EchoAdapter()
    listener = Listener("echo", "echo", adapter, None, ("127.0.0.1", 0), None)
    await run_listeners(broker, listener, client)
    broker.close()
