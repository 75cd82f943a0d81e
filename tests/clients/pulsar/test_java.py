"""Pulsar's Java client and admin client, step by step; skipped where the program is not built."""

import pytest

from conformance.programs.pulsar_java_program import NotBuilt, run
from conformance.server import RunningBroker

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def test_every_step_of_java(broker: RunningBroker) -> None:
    try:
        lines = run(broker.addresses["pulsar"], broker.url)
    except NotBuilt as error:
        pytest.skip(str(error))
    assert len(lines) > 10
    assert all(line.startswith("ok ") for line in lines), "\n".join(lines)
