"""The pytest plugin: a broker for the whole session, and names for each test.

pytest finds the plugin by an entry point. Imports the broker when a test first uses a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from braidlog.testing.double import Braidlog, Namespace


@pytest.fixture(scope="session")
def braidlog_session() -> Iterator[Braidlog]:
    """A running broker that all tests share."""
    from braidlog.testing.double import Braidlog

    with Braidlog() as broker:
        yield broker


@pytest.fixture
def braidlog(braidlog_session: Braidlog) -> Iterator[Braidlog]:
    """The running broker, without faults before and after the test."""
    braidlog_session.heal()
    yield braidlog_session
    braidlog_session.heal()


@pytest.fixture
def braidlog_namespace(braidlog: Braidlog, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Names of topics and groups for this test alone; the topics are deleted after the test."""
    namespace = braidlog.namespace(request.node.name)
    yield namespace
    braidlog.heal()
    namespace.delete()


@pytest.fixture
def braidlog_topic(braidlog_namespace: Namespace) -> str:
    """The name of an empty topic of one partition, for this test alone."""
    return braidlog_namespace.topic()
