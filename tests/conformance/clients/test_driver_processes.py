"""Driver processes serve several cases, until a case fails."""

import pytest

from conformance.clients.driver_processes import Drivers
from conformance.clients.libraries import CLIENTS

pytestmark = pytest.mark.slow
NOBODY = "127.0.0.1:1"


def test_a_driver_process_is_reused_until_it_is_ended():
    client = CLIENTS["httpx"]
    with Drivers() as drivers:
        first = drivers.open(client, NOBODY)
        second = drivers.open(client, NOBODY, 1)
        assert first is drivers.open(client, NOBODY)
        assert second is drivers.open(client, NOBODY, 1)
        assert second is not first
        drivers.end(first)
        assert drivers.open(client, NOBODY) is not first
        assert drivers.open(client, NOBODY, 1) is second
