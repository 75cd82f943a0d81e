"""The adapter as the broker loads it."""

import pytest

from braidlog.broker.config.settings import ConfigError, load
from braidlog.broker.server import adapters
from braidlog.broker.server.listener import make_listeners
from braidlog.protocols.iggy.adapter import ADAPTER
from braidlog.protocols.iggy.options import IggyOptions


def listeners(*settings: tuple[str, str]) -> list:
    flags = [(f"listeners.{name}", value, "test") for name, value in settings]
    others = [(f"listeners.{name}.listen", "off", "test") for name in ("kafka", "pulsar", "http")]
    return make_listeners(load(environment={}, file="/dev/null", flags=[*others, *flags]))


def test_listener_is_found_by_its_entry_point():
    assert adapters.load("iggy") is ADAPTER


def test_the_default_address_is_iggys():
    (listener,) = listeners()
    assert (listener.listen, listener.options) == (("127.0.0.1", 8090), IggyOptions())


def test_a_configured_password_is_read_from_its_file(tmp_path):
    everywhere = [("iggy.listen", "0.0.0.0:8090"), ("iggy.insecure", "true")]
    file = tmp_path / "password"
    with pytest.raises(ConfigError, match="password_file"):
        listeners(*everywhere, ("iggy.password_file", str(file)))
    file.write_text("s3cret\n")
    (listener,) = listeners(*everywhere, ("iggy.password_file", str(file)))
    assert listener.options.password() == "s3cret"


def test_the_line_for_a_client_has_the_address_and_the_login():
    line = ADAPTER.describe("127.0.0.1", 8090, IggyOptions())
    assert '"127.0.0.1:8090"' in line
    assert 'login_user("iggy", "iggy")' in line


def test_the_line_for_a_client_hides_a_generated_password():
    assert 'login_user("iggy", PASSWORD)' in ADAPTER.describe("0.0.0.0", 8090, IggyOptions())


def test_the_line_for_a_client_hides_a_configured_password(tmp_path):
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    options = IggyOptions(username="root", password_file=str(file))
    line = ADAPTER.describe("127.0.0.1", 8090, options)
    assert line.endswith('login_user("root", PASSWORD)')
    assert "s3cret" not in line


async def test_connections_of_a_broker_share_groups_and_turns(connect):
    first, second = await connect(), await connect()
    for talk in (first, second):
        await talk.login()
    clients = (await first.ask(22))["clients"]
    assert len({client["client_id"] for client in clients}) == 2
