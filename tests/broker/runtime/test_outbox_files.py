"""Parts of an outbox's output that lie in files."""

import random

import pytest
import trio

from braidlog.broker.limits import OUTBOX_LARGE_BYTES
from braidlog.storage.log.file_part import FilePart
from braidlog.storage.log.local_files import LocalFiles
from tests.broker.runtime.test_outbox import Sender
from tests.broker.server.echo import receive_exactly, tcp_pair
from tests.storage.log.test_file_part import WarmDisk

DATA = random.Random(1).randbytes(1 << 20)


class FileParts:
    """A file with its parts, and the parts that the socket received."""

    def __init__(self, folder):
        self.files = LocalFiles(folder, WarmDisk())
        self.file = self.files.create(f"{folder}/file")
        self.file.write_at([DATA], 0)
        self.sends = 0

    def part(self, pos, size):
        self.file.hold_to_read()
        try:
            lease = self.files.leases.take(self.file, size, pos)
        finally:
            self.file.release()
        half = size // 2
        return FilePart(lease, [(pos, half), (pos + half, size - half)], size)

    @property
    def leases(self):
        return self.files.leases.count


@pytest.fixture
def stored(tmp_path):
    return FileParts(tmp_path)


@pytest.fixture
async def sender(nursery):
    sock, client = await tcp_pair(send_buffer=16 * 1024)
    with sock:
        yield Sender(nursery, sock, client)
        await client.aclose()


async def test_parts_in_memory_and_in_files_are_sent_in_order(sender, stored):
    parts = [b"head", stored.part(5, 1000), b"middle", b"more", stored.part(3, 7), b"tail"]
    sender.outbox.put(parts)
    wanted = b"head" + DATA[5:1005] + b"middlemore" + DATA[3:10] + b"tail"
    assert await receive_exactly(sender.client, len(wanted)) == wanted
    assert sender.outbox.sent_bytes == len(wanted)
    assert sender.budget.used == 0


@pytest.mark.parametrize("seed", range(10))
async def test_any_frames_arrive_whole_in_any_pieces(sender, stored, seed):
    random_ = random.Random(seed)
    wanted = bytearray()
    async with trio.open_nursery() as nursery:
        received = bytearray()

        async def receive():
            while len(received) < total:
                received.extend(await sender.client.receive_some(random_.randrange(1, 300_000)))

        frames = []
        for _ in range(12):
            frame = []
            for _ in range(random_.randrange(1, 5)):
                pos, size = random_.randrange(1000), random_.randrange(1, 200_000)
                frame.append((pos, size, size >= OUTBOX_LARGE_BYTES and random_.random() < 0.7))
            frames.append(frame)
        total = sum(size for frame in frames for _, size, _ in frame)
        nursery.start_soon(receive)
        for frame in frames:
            parts = []
            for pos, size, in_file in frame:
                wanted += DATA[pos : pos + size]
                parts.append(stored.part(pos, size) if in_file else DATA[pos : pos + size])
            sender.outbox.gathering = random_.random() < 0.5
            sender.outbox.put(parts)
            sender.outbox.gathering = False
            if random_.random() < 0.5:
                await trio.testing.wait_all_tasks_blocked()
        sender.outbox.flush()
    assert received == wanted
    del parts
    assert stored.leases == 0


async def test_no_file_is_held_for_a_client_that_does_not_read(sender, stored):
    parts = [b"head", stored.part(0, len(DATA)), b"tail"]
    sender.outbox.put(parts)
    del parts
    unsent = sender.outbox.unsent_bytes
    assert 0 < unsent < len(DATA)
    assert sender.budget.used == unsent
    assert stored.leases == 0
    sender.outbox.put([b"next", stored.part(0, 1000)])  # Behind the waiting output.
    assert sender.outbox.unsent_bytes == unsent + 1004
    assert stored.leases == 0
    wanted = b"head" + DATA + b"tail" + b"next" + DATA[:1000]
    assert await receive_exactly(sender.client, len(wanted)) == wanted


async def test_output_waiting_for_the_disk_holds_no_file(sender, stored):
    sender.outbox.answer([b"a" * 20_000, stored.part(0, 40_000)], 1)
    assert stored.leases == 0
    assert sender.budget.used == 60_000
    sender.tickets.reach(1)
    wanted = b"a" * 20_000 + DATA[:40_000]
    assert await receive_exactly(sender.client, len(wanted)) == wanted


async def test_a_vanished_client_ends_the_outbox(sender, stored):
    await sender.client.aclose()
    for _ in range(50):
        sender.outbox.put([b"head", stored.part(0, 300_000)])
        await trio.testing.wait_all_tasks_blocked()
        if sender.broken:
            break
    assert len(sender.broken) == 1
    sender.broken.clear()
    assert sender.outbox.is_broken
    assert (stored.leases, sender.budget.used) == (0, 0)


@pytest.mark.parametrize("ticket", [0, 1])
async def test_lost_bytes_end_the_connection(sender, stored, ticket):
    """Within a frame, no other answer is possible."""
    parts = [b"head" * 5000, stored.part(len(DATA), 20_000)]
    sender.outbox.answer(parts, ticket)
    assert "ends before byte" in str(sender.broken.pop())
    assert sender.outbox.is_broken
    assert sender.budget.used == 0


async def test_an_encrypting_socket_receives_the_bytes(nursery, stored):
    """The same holds for any socket that is not plain."""
    sock, client = await tcp_pair(send_buffer=16 * 1024)

    class Wrapped:
        fileno, send, sendmsg = sock.fileno, sock.send, sock.sendmsg

    with sock:
        sender = Sender(nursery, Wrapped(), client)
        assert not sender.outbox.sends_files
        sender.outbox.put([b"head", stored.part(0, len(DATA)), b"tail"])
        assert stored.leases == 0
        wanted = b"head" + DATA + b"tail"
        assert await receive_exactly(client, len(wanted)) == wanted
        await client.aclose()
