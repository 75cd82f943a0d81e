"""Listeners: the configured listeners, allowed addresses, advertised addresses, and isolation of
clients.
"""

import socket

import pytest
import trio

from braidlog.broker.config.settings import ConfigError, load
from braidlog.broker.limits import KEEPALIVE_IDLE_S, KEEPALIVE_PROBE_S, KEEPALIVE_PROBES
from braidlog.broker.server.adapters import discover, listening_by_default
from braidlog.broker.server.listener import Listener, accept, make_listeners
from tests.broker.server.echo import EchoAdapter, framed, receive_all, receive_frame
from tests.waiting import until


def listeners_of(*flags):
    return make_listeners(
        load(file="/dev/null", environment={}, flags=[(*flag, "test") for flag in flags])
    )


def test_every_protocol_that_listens_by_default_has_a_listener_unless_disabled():
    by_default = set(listening_by_default())
    assert {listener.name for listener in listeners_of()} == by_default
    listeners = listeners_of(("listeners.kafka.listen", "off"))
    assert {listener.name for listener in listeners} == by_default - {"kafka"}


def test_an_optional_protocol_listens_only_if_configured():
    assert "zookeeper" in discover()
    assert "zookeeper" not in {listener.name for listener in listeners_of()}
    listeners = listeners_of(("listeners.zookeeper.listen", "127.0.0.1:0"))
    assert "zookeeper" in {listener.name for listener in listeners}


def test_default_addresses_are_those_of_the_protocols():
    listen = {listener.name: listener.listen for listener in listeners_of()}
    assert listen["kafka"] == ("127.0.0.1", 9092)
    assert listen["pulsar"] == ("127.0.0.1", 6650)
    assert listen["iggy"] == ("127.0.0.1", 8090)
    assert listen["http"] == ("127.0.0.1", 8080)


def test_a_protocol_can_have_a_second_listener():
    listeners = listeners_of(
        ("listeners.billing.protocol", "kafka"), ("listeners.billing.listen", "127.0.0.1:0")
    )
    (billing,) = (listener for listener in listeners if listener.name == "billing")
    assert billing.protocol == "kafka"


def test_other_machines_are_admitted_only_if_configured():
    with pytest.raises(ConfigError, match=r"listeners\.kafka\.insecure = true"):
        listeners_of(("listeners.kafka.listen", "0.0.0.0:0"))
    listeners = listeners_of(
        ("listeners.kafka.listen", "0.0.0.0:0"), ("listeners.kafka.insecure", "true")
    )
    (kafka,) = (listener for listener in listeners if listener.name == "kafka")
    assert not kafka.loopback


def listener(adapter=None, host="127.0.0.1", advertised=None):
    return Listener("echo", "echo", adapter or EchoAdapter(), None, (host, 0), advertised)


@pytest.mark.parametrize(
    ("host", "advertised", "expected"),
    [
        ("127.0.0.1", None, "127.0.0.1"),
        ("0.0.0.0", None, "10.1.2.3"),
        ("0.0.0.0", ("example.org", 7), "example.org"),
        ("127.0.0.1", ("example.org", 7), "example.org"),
    ],
)
def test_the_advertised_address_is_set_bound_or_the_clients_own(host, advertised, expected):
    opened = listener(host=host, advertised=advertised)
    opened.open()
    assert opened.advertised_to(("10.1.2.3", opened.bound[1]))[0] == expected
    opened.close()


def test_idle_connections_are_probed():
    opened = listener()
    opened.open()
    opened.socket.setblocking(True)
    with socket.create_connection(opened.bound), opened.socket.accept()[0] as accepted:
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_S
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == KEEPALIVE_PROBE_S
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == KEEPALIVE_PROBES
    opened.close()


def test_an_address_in_use_is_a_single_line():
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        busy = Listener("echo", "echo", EchoAdapter(), None, occupant.getsockname(), None)
        with pytest.raises(ConfigError, match=r"^echo: cannot listen on 127\.0\.0\.1:\d+: Address"):
            busy.open()
    assert busy.socket is None


CAREFUL = """
import msgspec

class Adapter:
    name = "careful"
    default_address = ("127.0.0.1", 0)
    options_type = msgspec.defstruct("Options", [("password", str, "")], frozen=True)

    def open_session(self, broker, connection, options):
        return None

    def describe(self, host, port, options):
        return ""

    def check(self, options, *, loopback):
        if not loopback and not options.password:
            raise ValueError("a password of your own is needed")

ADAPTER = Adapter()
"""


def test_an_adapter_may_refuse_options_for_an_address(installed):
    installed(CAREFUL, "careful = strange_listener:ADAPTER")
    assert "careful" in {listener.name for listener in listeners_of()}
    outside = (
        ("listeners.careful.listen", "0.0.0.0:0"),
        ("listeners.careful.insecure", "true"),
    )
    with pytest.raises(ConfigError, match=r"listeners\.careful: a password of your own is needed"):
        listeners_of(*outside)
    assert listeners_of(*outside, ("listeners.careful.password", "secret"))


@pytest.fixture
async def opened(broker, nursery):
    opened = listener()
    opened.open()
    nursery.start_soon(accept, opened, broker, nursery)
    yield opened
    opened.close()


async def test_connections_are_counted_and_forgotten(broker, opened):
    client = await trio.open_tcp_stream(*opened.bound)
    await client.send_all(framed(b"Ehi"))
    assert await receive_frame(client) == b"hi"
    assert len(broker.connections) == 1
    assert broker.metrics.number("braidlog_open_connections", "echo").value == 1
    await client.send_eof()
    assert await receive_all(client) == b""
    await client.aclose()
    await until(lambda: not broker.connections)
    assert broker.metrics.number("braidlog_open_connections", "echo").value == 0
    assert broker.metrics.number("braidlog_connections", "echo").value == 1


async def test_a_connection_during_a_stop_is_closed(broker, opened):
    broker.stop()
    client = await trio.open_tcp_stream(*opened.bound)
    assert await receive_all(client) == b""
    assert not broker.connections
