"""The simulation sets the clock of a life, and finds a broker that then drops fresh records."""

import pytest

from conformance.simulation.steps import STEPS_US, RandomLives
from conformance.simulation.verify import Broken
from tests.conformance.simulation.test_found import Story

DAY_MS = 86_400_000


class Ahead:
    """A random source that chooses the given step, and otherwise the first choice."""

    def __init__(self, step_us):
        self.step_us = step_us

    def choice(self, several):
        return self.step_us if several is STEPS_US else several[-1]

    def random(self):
        return 1.0


def stepped(tmp_path, step_us):
    story = Story(tmp_path)
    name = story.topic(retention_ms=DAY_MS)
    story.do(lambda life: life.append_to(story.partition(name), records=1))
    story.settle()
    story.life.rng = Ahead(step_us)
    story.do(RandomLives.step_clock)
    return story


@pytest.mark.parametrize("step_us", STEPS_US)
def test_a_clock_set_ahead_drops_no_record(tmp_path, step_us):
    stepped(tmp_path, step_us).do(RandomLives.retain)


def test_a_broker_that_trusts_its_clock_is_found(tmp_path):
    story = stepped(tmp_path, STEPS_US[-1])
    story.broker.ages.now_us = lambda limit_us: story.broker.now_us()
    with pytest.raises(Broken, match="fresh records"):
        story.do(RandomLives.retain)
