"""Listeners by broker, for connections that other brokers forward."""

import pytest

from braidlog.protocols.transport.serving import listed


def test_an_entry_lasts_as_long_as_its_listener():
    table = {}
    with listed(table, "broker", "listener"):
        assert table == {"broker": "listener"}
    assert table == {}
    with pytest.raises(OSError), listed(table, "broker", "listener"):
        raise OSError
    assert table == {}


def test_the_entry_of_a_later_listener_stays():
    table = {}
    with listed(table, "broker", "first"):
        table["broker"] = "second"
    assert table == {"broker": "second"}
