"""Numbers of producers: kept while in use, forgotten after hours, never reused."""

from types import SimpleNamespace

import pytest

from braidlog.broker.cluster.placement import Placement
from braidlog.broker.errors import LimitExceeded
from braidlog.broker.limits import StateLimits
from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.broker.topics.producer_names import FORGOTTEN_AFTER_S, ProducerNumbers
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from braidlog.storage.metadata.names import TopicName
from tests.broker.metadata_fakes import MemoryJournal
from tests.fake_clock import FakeClock

TOPIC = SimpleNamespace(meta=SimpleNamespace(name=TopicName("public", "default", "t")))


@pytest.fixture
def journal():
    return MemoryJournal()


def opened(journal, clock, **limits):
    state = JournalCatalogue(journal, now_us=1).catalogue
    catalogue = LocalCatalogue(
        state, Placement(), use_reserve=lambda change: change(), report=print
    )
    return ProducerNumbers(catalogue, clock, StateLimits(**limits))


def test_a_name_keeps_its_number_while_it_is_used(journal):
    clock = FakeClock(1000.0)
    numbers = opened(journal, clock)
    assert numbers.number(b"a", TOPIC)[0] == 1
    assert numbers.number(b"a", TOPIC)[0] == 1
    numbers.release(b"a", TOPIC)
    clock.now += 2 * FORGOTTEN_AFTER_S
    assert numbers._forget_idle(clock.now - FORGOTTEN_AFTER_S, 10) == 0
    assert numbers.number(b"a", TOPIC)[0] == 1


def test_a_forgotten_name_gets_another_number_over_restarts_too(journal):
    clock = FakeClock(1000.0)
    numbers = opened(journal, clock)
    numbers.number(b"a", TOPIC)
    numbers.number(b"b", TOPIC)
    numbers.release(b"b", TOPIC)
    clock.now += FORGOTTEN_AFTER_S + 1
    assert numbers._forget_idle(clock.now - FORGOTTEN_AFTER_S, 10) == 1
    numbers._catalogue.state.writer.rewrite()
    again = opened(journal.reopened(), clock)
    assert again.number(b"b", TOPIC)[0] == 3
    assert again.number(b"a", TOPIC)[0] == 1


def test_above_the_limit_the_longest_idle_producer_is_removed(journal):
    numbers = opened(journal, FakeClock(1000.0), producer_names=2)
    numbers.number(b"a", TOPIC)
    numbers.number(b"b", TOPIC)
    with pytest.raises(LimitExceeded):
        numbers.number(b"c", TOPIC)
    numbers.release(b"a", TOPIC)
    assert numbers.number(b"c", TOPIC)[0] == 3
