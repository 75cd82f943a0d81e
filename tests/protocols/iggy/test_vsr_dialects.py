"""The dialects of the framing of V and later, by the protocol version in a login."""

import struct

import pytest

from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.layouts_w import W_DEV, W
from braidlog.protocols.iggy.machine import IggyMachine, RefusedFrame
from braidlog.protocols.iggy.vsr_dialects import FRAMINGS, VSR_BY_NAME, dialect_of
from tests.protocols.iggy.test_vsr import frame
from tests.protocols.iggy.wtalk import login_body


@pytest.mark.parametrize(
    ("version", "sdk", "dialect"),
    [
        ((0, 11, 0), "0.11.0", V),
        ((0, 11, 7), "0.11.0", V),
        ((0, 12, 0), "0.12.0", W),
        ((0, 12, 0), "0.10.0", W),  # The versions of other languages' clients.
        ((0, 12, 0), "0.11.1-edge.5", W_DEV),
        ((0, 12, 1), "0.11.1-edge.6", W_DEV),
        ((0, 12, 2), "0.11.1-edge.10", W),
        ((0, 10, 0), "0.10.0", None),
        ((0, 13, 0), "0.13.0", None),
        ((1, 12, 0), "1.12.0", None),
    ],
)
def test_the_login_shows_the_dialect(version, sdk, dialect):
    assert dialect_of(memoryview(login_body(sdk, version))) is dialect


def test_a_refused_login_names_every_served_version():
    login = login_body(version=(0, 99, 0))
    machine = IggyMachine()
    request = memoryview(frame(operation=1, body=login))
    assert machine.frame_size(request) == len(request)
    event = machine.decode(request)
    assert isinstance(event, RefusedFrame)
    versions = {framing.version for framing in FRAMINGS.values()}
    newest, oldest = struct.unpack_from("<II", event.reply, 144)
    assert (newest, oldest) == (max(versions), min(versions))


def test_dialects_have_names_of_their_own():
    assert len(VSR_BY_NAME) == len(FRAMINGS)
