"""The HTTP listener with TLS: the same answers, certificates of clients, and
clients without TLS.
"""

import socket
from contextlib import asynccontextmanager

import pytest
import structlog
import trio

from braidlog.broker.config.settings import TlsConfig
from braidlog.broker.runtime.tls_socket import HANDSHAKE_S
from braidlog.broker.server.tls import TlsSettings
from braidlog.protocols.http.adapter import ADAPTER
from braidlog.protocols.http.options import RestOptions
from tests.broker.server.certificates import client_context, open_tls, write_files
from tests.protocols.http.listening import ask, connect, read_to_end


@pytest.fixture
async def serve(nursery, counted, tmp_path):
    """Return `serve`: `async with serve() as address` runs the listener with TLS."""

    @asynccontextmanager
    async def serve(clients="none"):
        certificate, ca = write_files(tmp_path)
        config = TlsConfig(
            certificate_file=certificate, client_ca_file=ca, client_certificates=clients
        )
        tls = TlsSettings(config, ADAPTER.alpn_protocols)
        stopping = trio.Event()
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.setblocking(False)
            listening.listen(16)
            async with trio.open_nursery() as serving:

                async def run():
                    sockets = [listening]
                    await ADAPTER.serve(counted, sockets, RestOptions(), stopping, tls=tls)

                serving.start_soon(run)
                yield listening.getsockname()
                stopping.set()

    return serve


async def test_requests_are_answered_as_without_tls(serve):
    async with serve() as address:
        stream = await open_tls(address)
        assert await ask(stream, "/healthz") == (200, b"ok\n")
        assert (await ask(stream, "/api/v1/topics"))[0] == 200
        await stream.aclose()


async def test_a_client_that_offers_http_2_gets_http_1(serve):
    async with serve() as address:
        context = client_context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        stream = await open_tls(address, context)
        assert await ask(stream, "/healthz") == (200, b"ok\n")
        assert stream.selected_alpn_protocol() == "http/1.1"
        await stream.aclose()


async def test_a_clients_certificate_is_its_principal(serve, counted):
    seen = []
    counted.authentication.by_certificate = lambda certificate, at: seen.append(certificate)
    async with serve("optional") as address:
        stream = await open_tls(address, client_context(common_name="alice"))
        assert (await ask(stream, "/healthz"))[0] == 200
        await stream.aclose()
        stream = await open_tls(address)
        assert (await ask(stream, "/healthz"))[0] == 200
        await stream.aclose()


async def test_a_client_without_tls_is_disconnected_and_logged(serve):
    with structlog.testing.capture_logs() as logs:
        async with serve() as address:
            stream = await connect(address)
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP" not in await read_to_end(stream)
            encrypted = await open_tls(address)  # Other clients are served.
            assert (await ask(encrypted, "/healthz"))[0] == 200
            await encrypted.aclose()
    (failure,) = [event for event in logs if event["event"] == "tls_handshake_failed"]
    assert failure["reason"] == "the client does not speak TLS: this listener does"


async def test_a_missing_handshake_times_out(serve, autojump_clock):
    with structlog.testing.capture_logs() as logs:
        async with serve() as address:
            stream = await connect(address)
            await trio.sleep(HANDSHAKE_S + 1)
            assert await read_to_end(stream) == b""
    (failure,) = [event for event in logs if event["event"] == "tls_handshake_failed"]
    assert failure["reason"] == f"not done within {HANDSHAKE_S:.0f} s"


async def test_a_client_that_vanishes_before_service_is_no_bug(serve):
    with structlog.testing.capture_logs() as logs:
        async with serve() as address:
            for _ in range(5):
                stream = await connect(address)
                await stream.aclose()
            encrypted = await open_tls(address)
            assert (await ask(encrypted, "/healthz"))[0] == 200
            await encrypted.aclose()
    assert not [event for event in logs if event["log_level"] == "error"]
