"""Cuts by TCP proxies: bytes sent during a cut arrive after the end of the cut, not before."""

import socket
import threading
from contextlib import ExitStack, suppress

import pytest

from conformance.cluster.network import OUTSIDE
from conformance.cluster.proxies import BROKERS, HANDSHAKE_BYTES, Proxies
from conformance.ports import reserve_ports

SOON_S, NEVER_S = 30.0, 0.1


@pytest.fixture
def echo():
    """Yield the address of an echo server."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(client):
        with suppress(OSError), client:
            while data := client.recv(100):
                client.sendall(data)

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=listening.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listening.getsockname()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


@pytest.fixture
def proxies():
    with Proxies() as opened:
        yield opened


def is_echoed(client, text):
    """Return True if the echo of `text` arrives."""
    client.sendall(text)
    return is_answered(client, text, SOON_S)


def is_answered(client, text, seconds):
    client.settimeout(seconds)
    try:
        return client.recv(100) == text
    except TimeoutError:
        return False


@pytest.mark.parametrize("way", [("node1", "pg"), ("pg", "node1")])
def test_a_cut_holds_bytes_in_both_directions_until_its_end(proxies, echo, way):
    with socket.create_connection(proxies.through("node1", "pg", echo)) as client:
        assert is_echoed(client, b"before")
        proxies.cut(*way)
        client.sendall(b"cut")
        assert not is_answered(client, b"cut", NEVER_S)
        proxies.heal()
        assert is_answered(client, b"cut", SOON_S)


def test_a_connection_made_during_a_cut_is_served_after_the_cut(proxies, echo):
    address = proxies.through("node1", "pg", echo)
    proxies.cut("node1", "pg")
    with socket.create_connection(address) as client:
        client.sendall(b"x")
        assert not is_answered(client, b"x", NEVER_S)
        proxies.heal()
        assert is_answered(client, b"x", SOON_S)


def test_a_cut_affects_only_the_named_parties(proxies, echo):
    proxies.cut("node2", "node1")
    with socket.create_connection(proxies.through(OUTSIDE, "node1", echo)) as client:
        assert is_echoed(client, b"of a client")
    with socket.create_connection(proxies.through(BROKERS, "node3", echo)) as client:
        assert is_echoed(client, b"at another port")
    with socket.create_connection(proxies.through(BROKERS, "node1", echo)) as client:
        client.sendall(b"of a broker")
        assert not is_answered(client, b"of a broker", NEVER_S)


def test_a_connection_to_a_closed_port_ends(proxies):
    with ExitStack() as held:
        (port,) = reserve_ports(1, held)
        address = proxies.through("node1", "pg", ("127.0.0.1", port))
        client = held.enter_context(socket.create_connection(address))
        client.settimeout(SOON_S)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_an_answer_to_a_broker_is_lost_behind_the_handshake_and_its_connection_ends(proxies, echo):
    address = proxies.through(BROKERS, "node1", echo)
    with socket.create_connection(address) as asker, socket.create_connection(address) as next_one:
        for client in (asker, next_one):
            client.sendall(bytes(HANDSHAKE_BYTES))
            client.settimeout(SOON_S)
            assert len(client.recv(HANDSHAKE_BYTES, socket.MSG_WAITALL)) == HANDSHAKE_BYTES
        proxies.lose_answer("node2")
        assert is_echoed(asker, b"of node 2 alone")
        proxies.lose_answer("node1")
        assert not proxies.has_lost
        asker.sendall(b"lost")
        assert asker.recv(100) == b""
        assert proxies.has_lost
        assert is_echoed(next_one, b"of another connection")


def test_no_answer_to_a_client_and_no_handshake_is_lost(proxies, echo):
    proxies.lose_answer("node1")
    with socket.create_connection(proxies.through(OUTSIDE, "node1", echo)) as client:
        assert is_echoed(client, bytes(HANDSHAKE_BYTES)[:90]) and is_echoed(client, b"answer")
    with socket.create_connection(proxies.through(BROKERS, "node1", echo)) as client:
        assert is_echoed(client, b"less than a handshake")
    assert not proxies.has_lost
