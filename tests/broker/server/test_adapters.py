"""Discovery of adapters, and the messages for unusable adapters."""

import subprocess
import sys

import pytest

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.server.adapters import AdapterError, discover, is_framed, is_serving, load


def test_the_four_protocols_are_found_by_name():
    assert {"kafka", "pulsar", "iggy", "http"} <= set(discover())
    assert is_framed(load("kafka"))
    assert is_serving(load("http"))


def test_an_unknown_name_is_reported_with_the_known_names():
    with pytest.raises(AdapterError, match=r"'amqp' is installed \(there are: .*kafka"):
        load("amqp")


def test_discovery_imports_no_adapter():
    program = (
        "import sys; from braidlog.broker.server.adapters import discover; discover()\n"
        "assert not [name for name in sys.modules if name.startswith('braidlog.protocols')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("module", "entry_point", "reason"),
    [
        (
            "import no_such_library\nADAPTER = 1",
            "strange = strange_listener:ADAPTER",
            "no_such_library",
        ),
        ("x = 1", "strange = strange_listener:ADAPTER", "ADAPTER"),
        (
            "ADAPTER = object()",
            "strange = strange_listener:ADAPTER",
            "neither open_session nor serve",
        ),
        ("x = 1", "strange = strange_nowhere:ADAPTER", "strange_nowhere"),
    ],
)
def test_an_unusable_adapter_is_a_single_line(installed, module, entry_point, reason):
    installed(module, entry_point)
    with pytest.raises(AdapterError) as caught:
        load("strange")
    assert reason in str(caught.value)
    assert "'strange'" in str(caught.value)


def test_protocol_errors_carry_their_reply():
    error = ProtocolError("bad", b"reply")
    assert (error.reason, error.reply) == ("bad", b"reply")
    assert ProtocolError("bad").reply == b""


@pytest.mark.parametrize("name", ["kafka", "pulsar", "iggy", "http"])
@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1:40123"), ("::1", "[::1]:40123")]
)
def test_every_listener_is_described_by_a_line_with_its_address(name, host, shown):
    adapter = load(name)
    line = adapter.describe(host, 40123, adapter.options_type())
    assert shown in line
    assert "\n" not in line
