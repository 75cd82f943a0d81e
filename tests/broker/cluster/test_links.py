"""Connections between brokers: a peer without the secret, or without the protocol, is refused."""

import secrets
from contextlib import ExitStack

import msgspec
import pytest
import trio
import trio.testing

from braidlog.broker import cluster_parts
from braidlog.broker.cluster.links import (
    HELLO_BYTES_MAX,
    HELLO_S,
    LENGTH,
    MAC_BYTES,
    MAGIC,
    MESSAGE_BYTES_MAX,
    NONCE_BYTES,
    Hello,
    LinkLost,
    connect,
    listening,
    mac,
    receive_message,
    send_message,
    welcome,
)
from braidlog.broker.config.settings import ConfigError
from conformance.ports import reserve_ports
from tests.waiting import until

SECRET = b"the secret of the cluster"
HELLO = Hello("cluster", 7, "calls")


@pytest.fixture
async def listener():
    socket_listener = listening(("127.0.0.1", 0))
    yield socket_listener
    await socket_listener.aclose()


@pytest.fixture
def dial(listener):
    """Return `dial(secret)`, which returns the results of a broker's connection at both ends."""

    async def dial(secret=SECRET):
        results = {}

        async def server():
            stream = await listener.accept()
            try:
                results["there"] = await welcome(stream, SECRET)
            except LinkLost as error:
                results["there"] = str(error)
                await stream.aclose()

        async def client():
            try:
                results["here"] = await connect(listener.socket.getsockname(), secret, HELLO)
            except LinkLost as error:
                results["here"] = str(error)

        async with trio.open_nursery() as both:
            both.start_soon(server)
            both.start_soon(client)
        return results["here"], results["there"]

    return dial


async def test_both_sides_know_the_secret_and_the_hello_arrives(dial):
    stream, hello = await dial()
    assert isinstance(stream, trio.SocketStream) and hello == HELLO
    await stream.aclose()


async def test_wrong_secret_is_not_answered(dial):
    here, remote = await dial(b"another secret")
    assert "the connection has ended" in here
    assert remote == "it does not know the cluster's secret"


async def test_an_answer_without_the_secret_ends_the_connection(listener, nursery):
    async def stranger():
        stream = await listener.accept()
        await stream.send_all(MAGIC + secrets.token_bytes(NONCE_BYTES))
        await stream.receive_some()
        await stream.send_all(secrets.token_bytes(MAC_BYTES))
        assert await stream.receive_some() == b""

    nursery.start_soon(stranger)
    with pytest.raises(LinkLost, match="it does not know the cluster's secret"):
        await connect(listener.socket.getsockname(), SECRET, HELLO)


async def test_handshake_times_out(listener, autojump_clock):
    began = trio.current_time()
    with pytest.raises(LinkLost, match=f"no answer within {HELLO_S:.0f} s"):
        await connect(listener.socket.getsockname(), SECRET, HELLO)
    stream = await listener.accept()
    silent, remote = await pair()
    with pytest.raises(LinkLost, match=f"no hello within {HELLO_S:.0f} s"):
        await welcome(remote, SECRET)
    await silent.aclose()
    assert trio.current_time() - began == pytest.approx(2 * HELLO_S, abs=0.5)
    assert await stream.receive_some() == b""  # An abandoned connection is closed.


async def test_an_unreachable_address_is_named():
    with ExitStack() as held:
        (port,) = reserve_ports(1, held)
        with pytest.raises(LinkLost, match=f"broker at 127.0.0.1:{port}: "):
            await connect(("127.0.0.1", port), SECRET, HELLO)


async def pair():
    """Return the two ends of a connection."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    near = await trio.testing.open_stream_to_socket_listener(listeners[0])
    other = await listeners[0].accept()
    await listeners[0].aclose()
    return near, other


def head(nonce, hello, magic=MAGIC, size=None, theirs=b""):
    proof = mac(SECRET, b"asks", theirs, nonce, hello)
    return magic + nonce + proof + LENGTH.pack(len(hello) if size is None else size) + hello


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"magic": b"BRAIDLNK\x02"}, "not a broker of this version"),
        ({"size": HELLO_BYTES_MAX + 1}, "not a broker of this version"),
        ({"hello": b"\xc1"}, "MessagePack"),
        ({"hello": msgspec.msgpack.encode(["cluster", 7])}, "length"),
    ],
    ids=["magic", "size", "no hello", "half a hello"],
)
async def test_a_malformed_hello_is_refused(nursery, changed, reason):
    here, remote = await pair()
    reasons = []

    @nursery.start_soon
    async def welcomed():
        with pytest.raises(LinkLost) as raised:
            await welcome(remote, SECRET)
        reasons.append(str(raised.value))

    theirs = (await here.receive_some(len(MAGIC) + NONCE_BYTES))[len(MAGIC) :]
    fields = {"hello": msgspec.msgpack.encode(HELLO), **changed}
    await here.send_all(head(bytes(NONCE_BYTES), theirs=theirs, **fields))
    await until(lambda: reasons)
    assert reason in reasons[0]


async def test_too_large_or_malformed_messages_end_the_link():
    here, remote = await pair()
    await send_message(here, [1, "x"])
    assert await receive_message(remote, list) == [1, "x"]
    await here.send_all(LENGTH.pack(1) + b"\xc1")
    with pytest.raises(LinkLost):
        await receive_message(remote, list)
    await here.send_all(LENGTH.pack(MESSAGE_BYTES_MAX + 1))
    with pytest.raises(LinkLost, match=f"a message of {MESSAGE_BYTES_MAX + 1} bytes"):
        await receive_message(remote, list)
    await here.aclose()
    with pytest.raises(LinkLost, match="the connection has ended"):
        await receive_message(remote, list)
    with pytest.raises(LinkLost):
        for _ in range(100):
            await send_message(remote, b"x" * 100_000)


async def test_an_address_in_use_is_an_error(listener):
    with pytest.raises(OSError, match="in use"):
        listening(listener.socket.getsockname())


def test_the_secret_comes_from_variable_file_or_database(tmp_path, monkeypatch):
    file = tmp_path / "secret"
    file.write_text(" of the file \n")
    monkeypatch.delenv(cluster_parts.SECRET_VARIABLE, raising=False)
    assert cluster_parts._secret(None, "of the database") == b"of the database"
    assert cluster_parts._secret(str(file), "of the database") == b"of the file"
    monkeypatch.setenv(cluster_parts.SECRET_VARIABLE, "of the variable")
    assert cluster_parts._secret(str(file), "of the database") == b"of the variable"


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b" \n", "is empty")])
def test_an_unreadable_secret_is_a_single_line(tmp_path, monkeypatch, content, reason):
    monkeypatch.delenv(cluster_parts.SECRET_VARIABLE, raising=False)
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigError, match=f"cluster.secret_file .*{reason}"):
        cluster_parts._secret(str(tmp_path / "secret"), "of the database")
