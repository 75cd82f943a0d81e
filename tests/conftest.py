"""Fixtures that several floors use: a broker inside the test's own trio run, and clients of its
listeners. Decides what would otherwise be left to chance.
"""

import os
from importlib import import_module

import hypothesis
import pytest
import structlog
import trio
from trio._core import _run as scheduler

from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import load
from braidlog.broker.topics.schema_rules import PARSER
from braidlog.protocols.http.management.health import SCRAPING
from conformance.server import RunningBroker
from tests import turns
from tests.listeners import open_listeners

# A broker imports these in a thread when a client first needs them: in no test, whose clock jumps.
import_module(PARSER)
import_module(SCRAPING)

# Every run looks at the same examples, and none is too late because the machine is busy.
hypothesis.settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same")


# Brokers in processes of their own say more than they would to an operator.
os.environ["BRAIDLOG_LOOP_TURN_LOG_MS"] = f"{turns.TURN_S_MAX * 1000:.0f}"


# As in a broker's process: `rich` takes half a second to show a traceback, which counts as a turn.
_plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _plain])


def pytest_addoption(parser):
    parser.addoption("--order", type=int, default=0, help="seed of the order of trio's tasks")


def pytest_report_header(config):
    return f"order of trio's tasks: --order {config.getoption('order')}"


@pytest.fixture(autouse=True)
def order_of_tasks(request):
    """The order in which trio gives turns, by chance anew for each test, is that of a seed."""
    scheduler._r.seed(f"{request.config.getoption('order')} {request.node.nodeid}")


@pytest.fixture(autouse=True)
def turns_of_processes():
    """Fails a test during which a broker in a process of its own held its loop for too long."""
    yield
    brokers = RunningBroker.started
    found = [line for broker in brokers for line in broker.new_log_lines()]
    brokers[:] = [broker for broker in brokers if broker.is_running()]
    if long := turns.logged(found):
        raise turns.LongTurns("\n".join(long))


@pytest.fixture
async def broker(request, tmp_path):
    """A broker on an empty directory, its committer running; no listener is open.

    Its settings can be given as a dict, by `parametrize` with `indirect`.
    """
    flags = [("data_dir", str(tmp_path / "data"), "test")]
    flags += [(*setting, "test") for setting in getattr(request, "param", {}).items()]
    opened = Broker.open(load(environment={}, file="/dev/null", flags=flags))
    watch = turns.Watch()
    trio.lowlevel.add_instrument(watch)
    async with trio.open_nursery() as running:
        running.start_soon(opened.run)
        opened.ready.set()
        yield opened
        opened.stop()
        running.cancel_scope.cancel()
    opened.close()
    watch.close()


@pytest.fixture
async def open_client(broker):
    """`await open_client("kafka")`: as `open_listeners` gives it, of `broker`."""
    async with open_listeners(broker) as connect:
        yield connect
