"""What strangers send disturbs no client, loses nothing and leaves nothing: the short form."""

from dataclasses import replace

import pytest

from conformance.hostile.attack import attack
from conformance.hostile.clearing import prepare
from conformance.hostile.commands import protocols
from conformance.hostile.judge import judged, restarts_with_the_same
from conformance.hostile.scenarios import SCENARIOS, SHORT
from conformance.server import RunningBroker

pytestmark = pytest.mark.slow

FRAMES = {"kafka": 20_000, "pulsar": 20_000, "http": 1000}
SEED = 1
# Those of Iggy's first dialect come with a login and without.
DIALECTS = ("D0", "D1a", "D1b", "D2", "D3", "D4", "D5", "V")
DIALECT_FRAMES = 20_000  # Of each.


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


@pytest.mark.parametrize("dialect", DIALECTS)
def test_mutated_frames_of_each_dialect_of_iggy(broker, dialect):
    iggy = protocols()["iggy"]
    talks = [talk for talk in iggy.talks if talk.dialect.split()[0] == dialect]
    prepare(broker)
    with judged(broker):
        sent = attack(broker, replace(iggy, talks=talks), DIALECT_FRAMES, SEED)
    assert not sent.hung
    assert sent.handled.total() >= sent.total / 3, sent


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(broker, name):
    with judged(broker):
        SCENARIOS[name](broker, SHORT)
