"""Listeners with TLS: the same bytes as without, endings, and clients without TLS."""

import socket
import ssl

import pytest
import structlog
import trio
from cryptography.hazmat.primitives import serialization

from braidlog.broker.config.settings import TlsConfig
from braidlog.broker.runtime.receiver import HTTP_HINT, TLS_HINT
from braidlog.broker.runtime.tls_socket import HANDSHAKE_S, PLAIN_HELLO
from braidlog.broker.server.connection import address_text
from braidlog.broker.server.listener import Listener, accept
from braidlog.broker.server.tls import TlsSettings
from tests.broker.server.certificates import (
    client_context,
    open_tls,
    other_authority,
    tls_settings,
    write_files,
)
from tests.broker.server.echo import (
    EchoAdapter,
    EchoBench,
    framed,
    receive_all,
    receive_exactly,
    receive_frame,
)
from tests.waiting import until


@pytest.fixture
async def bench(nursery):
    return EchoBench(nursery)


@pytest.fixture
async def serve(broker, nursery, tmp_path):
    opened = []

    def start(clients="none"):
        listener = Listener(
            "echo",
            "echo",
            EchoAdapter(),
            None,
            ("127.0.0.1", 0),
            None,
            tls_settings(tmp_path, clients),
        )
        listener.open()
        nursery.start_soon(accept, listener, broker, nursery)
        opened.append(listener)
        return listener

    yield start
    for listener in opened:
        listener.close()


async def test_frames_of_any_size_go_both_ways(serve):
    client = await open_tls(serve().bound)
    texts = [b"hello", b"x" * 40_000, b"", b"y" * 1_000_000]
    for text in texts:
        await client.send_all(framed(b"E" + text))
        assert await receive_frame(client) == text


@pytest.mark.parametrize("piece", [1, 7, 5000])
async def test_any_chunking_gives_the_same_answers(serve, piece):
    client = await open_tls(serve().bound)
    texts = [b"a", b"b" * 300, b"c" * 9000]
    stream = b"".join(framed(b"E" + text) for text in texts)
    for start in range(0, len(stream), piece):
        await client.send_all(stream[start : start + piece])
    for text in texts:
        assert await receive_frame(client) == text


async def test_a_slow_reader_gets_every_byte_in_order(serve, broker):
    client = await open_tls(serve().bound)
    # More than the kernel's buffers of both sides hold.
    sizes = [16 << 20, 70_000, 3, 16_384, 16_385, 200_000]
    await client.send_all(b"".join(framed(b"L%d" % size) for size in sizes))
    await until(lambda: any(connection.outbox.unsent_bytes for connection in broker.connections))
    for size in sizes:
        assert len(await receive_frame(client)) == size
    await client.send_all(framed(b"Eend"))
    assert await receive_frame(client) == b"end"


async def test_the_end_is_announced_with_close_notify(serve):
    client = await open_tls(serve().bound)
    await client.send_all(framed(b"Qbye"))
    assert await receive_all(client) == framed(b"quiet")
    # Without a close_notify the library would have raised BrokenResourceError.


async def test_a_client_without_tls_gets_no_answer_and_the_log_the_reason(serve, broker):
    listener = serve()
    with structlog.testing.capture_logs() as events:
        stream = await trio.open_tcp_stream(*listener.bound)
        peer = address_text(stream.socket.getsockname())
        await stream.send_all(framed(b"Ehello"))
        try:
            await receive_all(stream)
        except trio.BrokenResourceError:
            pass  # The broker did not read all bytes: a reset is a valid end.
        await until(lambda: events)
    (event,) = events
    assert event["event"] == "tls_handshake_failed" and event["reason"] == PLAIN_HELLO
    assert event["listener"] == "echo" and event["peer"] == peer
    assert broker.admission.open == 0


async def test_a_silent_client_is_disconnected(serve, broker, autojump_clock):
    stream = await trio.open_tcp_stream(*serve().bound)
    began = trio.current_time()
    assert await receive_all(stream) == b""
    assert trio.current_time() - began == pytest.approx(HANDSHAKE_S, abs=1)


async def test_a_disconnect_during_the_handshake_leaves_nothing(serve, broker):
    listener = serve()
    for _ in range(5):
        stream = await trio.open_tcp_stream(*listener.bound)
        await stream.send_all(b"\x16\x03\x01\x02\x00")
        await stream.aclose()
    await until(lambda: broker.admission.open == 0)
    client = await open_tls(listener.bound)
    await client.send_all(framed(b"Eok"))
    assert await receive_frame(client) == b"ok"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_tls_1_1_is_refused(serve):
    context = client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.raises(trio.BrokenResourceError):
        await open_tls(serve().bound, context)


async def test_the_name_in_a_client_certificate_is_the_principal(serve, broker):
    client = await open_tls(serve("required").bound, client_context(common_name="anna"))
    await client.send_all(framed(b"Ehi"))
    assert await receive_frame(client) == b"hi"
    (connection,) = broker.connections
    assert connection.principal.name == "anna" and connection.is_encrypted


@pytest.mark.parametrize("signed_by", [None, other_authority])
async def test_a_client_without_a_trusted_certificate_is_refused(serve, signed_by):
    context = client_context()
    if signed_by is not None:
        context = client_context(common_name="anna", signed_by=signed_by())
    with pytest.raises(trio.BrokenResourceError):
        client = await open_tls(serve("required").bound, context)
        await client.send_all(framed(b"Ehi"))
        await receive_exactly(client, 6)


async def test_an_optional_certificate_may_be_missing(serve, broker):
    client = await open_tls(serve("optional").bound)
    await client.send_all(framed(b"Ehi"))
    assert await receive_frame(client) == b"hi"
    (connection,) = broker.connections
    assert connection.principal.is_anonymous


async def test_a_reload_affects_new_connections_only(serve, tmp_path):
    listener = serve()
    old = await open_tls(listener.bound)
    first = old.getpeercert(binary_form=True)
    write_files(tmp_path, "127.0.0.1")
    listener.tls.reload()
    new = await open_tls(listener.bound)
    assert new.getpeercert(binary_form=True) != first
    for client in (old, new):
        await client.send_all(framed(b"Ehi"))
        assert await receive_frame(client) == b"hi"


async def test_a_reload_of_a_broken_file_changes_nothing(serve, tmp_path):
    listener = serve()
    (tmp_path / "server.pem").write_text("noise")
    with pytest.raises(ValueError, match=r"server\.pem"):
        listener.tls.reload()
    client = await open_tls(listener.bound)
    await client.send_all(framed(b"Ehi"))
    assert await receive_frame(client) == b"hi"


def test_unusable_files_are_named(tmp_path):
    certificate, ca = write_files(tmp_path)
    with pytest.raises(ValueError, match="nowhere"):
        TlsSettings(TlsConfig(certificate_file=str(tmp_path / "nowhere.pem")))
    with pytest.raises(ValueError, match=r"authority\.pem"):
        TlsSettings(TlsConfig(certificate_file=ca))
    with pytest.raises(ValueError, match="client_ca_file"):
        TlsSettings(TlsConfig(certificate_file=certificate, client_certificates="required"))


def key_fault(certificate, key):
    with pytest.raises(ValueError, match=r".") as refused:
        TlsSettings(TlsConfig(certificate_file=certificate, key_file=str(key)))
    return str(refused.value)


def test_a_key_that_cannot_be_used_is_reported_by_its_own_name(tmp_path):
    certificate, _ = write_files(tmp_path)
    key = tmp_path / "server.key"
    assert key_fault(certificate, key) == f"{key}: No such file or directory"
    key.mkdir()
    assert key_fault(certificate, key) == f"{key}: Is a directory"
    key.rmdir()
    begins = f"{key}: no private key of the certificate {certificate}: "
    key.write_text("noise")
    assert key_fault(certificate, key) == f"{begins}not PEM"
    key.write_bytes(other_authority().issue_cert("elsewhere").private_key_pem.bytes())
    assert key_fault(certificate, key) == f"{begins}KEY_VALUES_MISMATCH"


def test_a_certificate_is_reported_by_its_own_name_beside_a_good_key(tmp_path):
    write_files(tmp_path)
    key, certificate = tmp_path / "good.key", tmp_path / "certificate.pem"
    key.write_bytes(other_authority().issue_cert("here").private_key_pem.bytes())
    certificate.write_text("noise")
    assert key_fault(str(certificate), key).startswith(f"{certificate}: no certificate: ")
    certificate.unlink()
    certificate.mkdir()
    assert key_fault(str(certificate), key) == f"{certificate}: Is a directory"


def test_an_encrypted_key_is_refused_instead_of_a_question_at_the_terminal(tmp_path):
    certificate, _ = write_files(tmp_path)
    loaded = serialization.load_pem_private_key(
        other_authority().issue_cert("here").private_key_pem.bytes(), None
    )
    key = tmp_path / "server.key"
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    expected = f"{key}: the private key is encrypted, expected a key without a password"
    assert key_fault(certificate, key) == expected


async def test_noise_in_the_handshake_ends_only_that_connection(serve, broker):
    listener = serve()
    for noise in (b"\x16\x03\x01\x00\x05hello", b"\x00" * 300, b"GET / HTTP/1.1\r\n\r\n"):
        with socket.socket() as sock:
            sock.setblocking(False)
            try:
                sock.connect(listener.bound)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(sock)
            sock.send(noise)
            await until(lambda: broker.admission.open == 0)
    client = await open_tls(listener.bound)
    await client.send_all(framed(b"Ehi"))
    assert await receive_frame(client) == b"hi"


async def test_a_tls_hello_at_a_plain_listener_ends_at_once_with_a_log_line(bench):
    stream = await bench.connect()
    hello, incoming, outgoing = client_context(), ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        hello.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    with structlog.testing.capture_logs() as events:
        await stream.send_all(outgoing.read())
        assert await receive_all(stream) == framed(b"too large")
    (event,) = (event for event in events if event["event"] == "protocol_error")
    assert event["hint"] == TLS_HINT


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /topics/a HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
    ],
)
async def test_an_http_request_at_a_framed_listener_ends_with_a_log_line(bench, request_line):
    stream = await bench.connect()
    with structlog.testing.capture_logs() as events:
        await stream.send_all(request_line + b"Host: a\r\n\r\n")
        assert await receive_all(stream) == framed(b"too large")
    (event,) = (event for event in events if event["event"] == "protocol_error")
    assert (event["reason"], event["hint"]) == ("an HTTP request", HTTP_HINT)
