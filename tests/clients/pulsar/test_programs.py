"""Pulsar's clients of other languages, step by step, where their programs are built."""

import pytest

from conformance.programs.__main__ import PROGRAMS
from conformance.programs.running import NotBuilt
from conformance.server import RunningBroker

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_step(broker: RunningBroker, name: str) -> None:
    try:
        lines = PROGRAMS[name].run(broker.addresses["pulsar"], broker.url)
    except NotBuilt as error:
        pytest.skip(str(error))
    assert len(lines) >= 8
    assert all(line.startswith("ok ") for line in lines), "\n".join(lines)
