"""The contract of every framed adapter: a kit for each listener's tests.

    class TestKafkaContract(AdapterContract):
        protocol = "kafka"
        exchanges = [AnsweredFrame(request, [answer]), ...]
        ...

Subclasses describe their protocol by attributes and a few small methods; the tests are here. They
run against a real broker through loopback sockets (fixtures `broker` and `open_client` of
`tests/conftest.py`), and for damaged bytes against a session alone. An adapter whose answers have
generated values (a time, a random id) removes them in `normal`.
"""

import random
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import trio
import trio.testing

from braidlog.broker import errors
from braidlog.broker.limits import OUTBOX_BYTES_MAX
from braidlog.broker.runtime.endings import ProtocolError
from tests.cycles import watched_cycles
from tests.waiting import HANG_S

OpenClient = Callable[[str], Awaitable[trio.SocketStream]]

HTTP_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
FLOOD_BYTES = 24 * 1024 * 1024  # More than the kernel holds for both ends of a socket.


@dataclass(frozen=True)
class AnsweredFrame:
    """A request frame and its whole answer frames, in order."""

    request: bytes
    answers: Sequence[bytes] = ()


class AdapterContract:
    """Inherit as `Test...`, and define the attributes and methods below."""

    protocol: ClassVar[str]
    """The adapter's name, as `open_client` takes it."""
    exchanges: ClassVar[Sequence[AnsweredFrame]]
    """A conversation on a fresh broker, the opening handshake first. The last has an answer."""
    oversized: ClassVar[bytes]
    """The first bytes of a frame that is too long; the adapter must not wait for more of it."""
    flood: ClassVar[bytes]
    """A request that can be repeated for ever after `opening`, with one answer each."""
    opening: ClassVar[int] = 0
    """Number of exchanges that come before anything else may be sent."""
    wire_codes: ClassVar[Mapping[type[errors.BrokerError], Any]]
    """The table of the adapter's `errors.py`."""
    farewell: ClassVar[bool] = False
    """True if the protocol sends an error before it closes the connection."""

    def answer_size(self, data: bytes) -> int | None:
        """Return the size of the first answer frame in `data`, None while unknown."""
        raise NotImplementedError

    def decode(self, data: memoryview) -> None:
        """Read every frame in `data` like the machine, from the first byte of a connection.

        Raises ProtocolError, and no other error.
        """
        raise NotImplementedError

    def normal(self, frame: bytes) -> object:
        """Return an answer without the values that differ from run to run."""
        return frame

    # Bytes in, answers out.

    @pytest.mark.parametrize("chunking", ["frames", "bytes", "all at once", *range(4)])
    async def test_any_chunking_gives_the_same_answers_in_order(
        self, broker: Any, open_client: OpenClient, chunking: str | int
    ) -> None:
        client = await open_client(self.protocol)
        expected = [self.normal(answer) for each in self.exchanges for answer in each.answers]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_chunks, client, self._chunks(chunking))
            answers = await self._receive(client, len(expected))
        assert [self.normal(answer) for answer in answers] == expected

    async def test_an_ended_connection_leaves_no_garbage_cycle(
        self, open_client: OpenClient
    ) -> None:
        """Thousands of ended connections at once would block the event loop during a cycle
        collection.
        """

        async def talk() -> None:
            client = await open_client(self.protocol)
            await client.send_all(
                b"".join(exchange.request for exchange in self.exchanges) + self.oversized
            )
            await client.send_eof()
            await _read_to_end(client)
            await client.aclose()
            await trio.testing.wait_all_tasks_blocked(0.01)

        await talk()
        with watched_cycles() as left:
            await talk()
            counts = Counter(type(item).__qualname__ for item in left())
        assert not counts, counts

    async def test_each_request_is_answered_before_the_next_is_sent(
        self, broker: Any, open_client: OpenClient
    ) -> None:
        client = await open_client(self.protocol)
        await self._converse(client)

    # Ends.

    async def test_closing_drains_pending_answers(
        self, broker: Any, open_client: OpenClient
    ) -> None:
        client = await open_client(self.protocol)
        await client.send_all(b"".join(each.request for each in self.exchanges))
        await client.send_eof()
        expected = [self.normal(answer) for each in self.exchanges for answer in each.answers]
        received = self._split(await _read_to_end(client))
        assert [self.normal(answer) for answer in received[: len(expected)]] == expected

    @pytest.mark.slow
    async def test_end_of_stream_at_any_byte_ends_only_that_connection(
        self, broker: Any, open_client: OpenClient
    ) -> None:
        bystander = await open_client(self.protocol)
        stream = b"".join(each.request for each in self.exchanges[: self.opening + 1])
        for end in range(len(stream)):
            client = await open_client(self.protocol)
            await client.send_all(stream[:end])
            await client.send_eof()
            await _read_to_end(client)
        await self._converse(bystander)

    async def test_oversized_frame_is_refused_from_its_first_bytes(
        self, broker: Any, open_client: OpenClient
    ) -> None:
        await self._refused(open_client, self.oversized)

    @pytest.mark.parametrize("hello", ["HTTP", "TLS"])
    async def test_clients_of_other_protocols_are_refused_at_once(
        self, broker: Any, open_client: OpenClient, hello: str
    ) -> None:
        await self._refused(open_client, HTTP_REQUEST if hello == "HTTP" else tls_hello())

    # Damage.

    @pytest.mark.parametrize("seed", range(10))
    def test_random_and_damaged_bytes_raise_only_protocol_error(self, seed: int) -> None:
        rng = random.Random(seed)
        stream = b"".join(each.request for each in self.exchanges)
        for _ in range(100):
            damaged = bytearray(stream)
            for _ in range(rng.randint(1, 6)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            for data in (bytes(damaged), rng.randbytes(rng.randrange(1, 64))):
                try:
                    self.decode(memoryview(bytearray(data)))
                except ProtocolError:
                    pass

    @pytest.mark.parametrize("seed", range(5))
    async def test_random_bytes_end_a_connection_and_disturb_no_other(
        self, broker: Any, open_client: OpenClient, seed: int
    ) -> None:
        rng = random.Random(seed)
        bystander = await open_client(self.protocol)
        for _ in range(10):
            client = await open_client(self.protocol)
            await client.send_all(rng.randbytes(rng.randrange(1, 4096)))
            try:
                await client.send_eof()
                await _read_to_end(client)
            except trio.BrokenResourceError:
                pass  # The broker closed the connection over unread bytes.
        await self._converse(bystander)

    # Pressure.

    @pytest.mark.slow
    async def test_client_that_does_not_read_stops_being_read(
        self, broker: Any, open_client: OpenClient
    ) -> None:
        client = await open_client(self.protocol)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for exchange in self.exchanges[: self.opening]:
            await client.send_all(exchange.request)
            await self._receive(client, len(exchange.answers))
        requests = 1 + FLOOD_BYTES // len(self.flood)
        sent = 0

        async def send_all() -> None:
            nonlocal sent
            piece = 1000
            for at in range(0, requests, piece):
                await client.send_all(self.flood * min(piece, requests - at))
                sent += min(piece, requests - at)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all)
            with trio.fail_after(HANG_S):
                before = -1
                while before != sent:  # Until neither end makes progress.
                    before = sent
                    await trio.testing.wait_all_tasks_blocked(cushion=0.1)
            assert sent < requests, "everything was read although nothing was taken"
            (connection,) = broker.connections
            assert connection.outbox.unsent_bytes < 2 * OUTBOX_BYTES_MAX
            nursery.cancel_scope.cancel()

    # Errors.

    def test_every_broker_error_has_a_wire_code(self) -> None:
        known = {kind for kind in vars(errors).values() if isinstance(kind, type)}
        assert not {kind.__name__ for kind in known - set(self.wire_codes)} - {"BrokerError"}

    # Tools.

    async def _refused(self, open_client: OpenClient, data: bytes) -> None:
        """Check that the connection is closed although more of these bytes could come."""
        client = await open_client(self.protocol)
        await client.send_all(data)
        received = await _read_to_end(client)
        assert bool(received) == self.farewell

    async def _converse(self, client: trio.SocketStream) -> None:
        for exchange in self.exchanges:
            await client.send_all(exchange.request)
            answers = await self._receive(client, len(exchange.answers))
            assert list(map(self.normal, answers)) == list(map(self.normal, exchange.answers))

    async def _receive(self, client: trio.SocketStream, count: int) -> list[bytes]:
        """Return the next `count` answer frames."""
        data = b""
        with trio.fail_after(HANG_S):
            while len(answers := self._split(data)) < count:
                more = await client.receive_some()
                assert more, f"closed after {len(answers)} of {count} answers"
                data += more
        assert data == b"".join(answers), "bytes behind the last answer"
        return answers

    def _split(self, data: bytes) -> list[bytes]:
        frames = []
        while (size := self.answer_size(data)) is not None and size <= len(data):
            frames.append(data[:size])
            data = data[size:]
        return frames

    def _chunks(self, chunking: str | int) -> list[bytes]:
        frames = [exchange.request for exchange in self.exchanges]
        stream = b"".join(frames)
        if chunking == "frames":
            return frames
        if chunking == "all at once":
            return [stream]
        if chunking == "bytes":
            return [stream[at : at + 1] for at in range(len(stream))]
        assert isinstance(chunking, int)
        rng = random.Random(chunking)
        cuts = sorted(rng.sample(range(1, len(stream)), min(12, len(stream) - 1)))
        return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def tls_hello() -> bytes:
    """Return the first bytes of a TLS client."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


async def _send_chunks(client: trio.SocketStream, chunks: Sequence[bytes]) -> None:
    for chunk in chunks:
        await client.send_all(chunk)
        await trio.testing.wait_all_tasks_blocked()


async def _read_to_end(client: trio.SocketStream) -> bytes:
    """Return all bytes until the other side closes; a reset counts as a close."""
    data = b""
    with trio.fail_after(HANG_S):
        try:
            while more := await client.receive_some():
                data += more
        except trio.BrokenResourceError:
            pass
    return data
