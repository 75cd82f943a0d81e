"""What strangers send disturbs no client, loses nothing and leaves nothing: the short form."""

import pytest

from conformance.hostile.attack import attack
from conformance.hostile.clearing import prepare
from conformance.hostile.commands import protocols
from conformance.hostile.judge import judged, restarts_with_the_same
from conformance.hostile.scenarios import SCENARIOS, SHORT
from conformance.server import RunningBroker

pytestmark = pytest.mark.slow

FRAMES = {"kafka": 20_000, "pulsar": 20_000, "iggy": 20_000, "http": 1000}
SEED = 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all of it; at the end it restarts with the same records."""
    with RunningBroker(tmp_path_factory.mktemp("hostile")) as running:
        yield running
        restarts_with_the_same(running)


@pytest.mark.parametrize("name", FRAMES)
def test_mutated_frames(broker, name):
    prepare(broker)
    with judged(broker):
        sent = attack(broker, protocols()[name], FRAMES[name], SEED)
    assert not sent.hung
    assert sent.handled.total() >= sent.total / (2 if name != "http" else 10), sent


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(broker, name):
    with judged(broker):
        SCENARIOS[name](broker, SHORT)
