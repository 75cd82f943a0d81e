"""Fixtures for several folders: a broker inside the test's own trio run, and clients of its
listeners.

The fixtures also fix random choices.
"""

import os
import signal
from importlib import import_module

import hypothesis
import pytest
import structlog
from trio._core import _run as scheduler

from braidlog.broker.limits import STATE_LIMITS, StateLimits
from braidlog.broker.topics.schema_rules import PARSER
from braidlog.protocols.http.management.health import SCRAPING
from tests import turns
from tests.listeners import open_listeners
from tests.opened import opened_broker
from tests.storage.open_directories import abandon_directories

# A broker imports these in a thread at a client's first use: not in a test whose clock jumps.
import_module(PARSER)
import_module(SCRAPING)

# Every run uses the same examples, and a busy machine makes none too late.
hypothesis.settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same")


# As in a broker's process: `rich` takes half a second to render a traceback, which counts as a
# turn.
_plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _plain])

# Far above what tests and their fixtures leave open, 20 to 200.
DESCRIPTORS_MAX = 900


def pytest_addoption(parser):
    parser.addoption("--order", type=int, default=0, help="seed of the order of trio's tasks")


def pytest_configure():
    """Let SIGINT end the programs that tests start: a shell's background jobs ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config):
    return f"order of trio's tasks: --order {config.getoption('order')}"


@pytest.fixture(autouse=True)
def order_of_tasks(request):
    """Seed the order in which trio runs tasks, for each test; trio's order is random otherwise."""
    scheduler._r.seed(f"{request.config.getoption('order')} {request.node.nodeid}")


@pytest.fixture(autouse=True)
def few_descriptors():
    """Close data directories that a kit leaves open, and fail the test after which too many
    descriptors are open: some test before leaves them, and a process may have 1,024.
    """
    yield
    abandon_directories()
    count = len(os.listdir("/proc/self/fd"))
    assert count < DESCRIPTORS_MAX, f"{count} descriptors are open after this test"


@pytest.fixture
async def broker(request, tmp_path):
    """A broker on an empty directory with a running committer and no open listener.

    `parametrize` with `indirect` takes its settings as a dict. The mark `limits` takes the fields
    of `StateLimits` that differ.
    """
    run = getattr(request.node, "execution_count", 1)
    settings = getattr(request, "param", {})
    mark = request.node.get_closest_marker("limits")
    limits = StateLimits(**mark.kwargs) if mark else STATE_LIMITS
    async with opened_broker(tmp_path / "data", settings, run, limits) as opened:
        yield opened


@pytest.fixture
async def open_client(broker):
    """`await open_client("kafka")`: a client of `broker`, as from `open_listeners`."""
    async with open_listeners(broker) as connect:
        yield connect


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    """Take a LongTurns out of its group: `--only-rerun` looks at the outer error alone, and an
    asynchronous fixture raises within a nursery.
    """
    error = call.excinfo.value if call.excinfo is not None else None
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, turns.LongTurns) and error is not call.excinfo.value:
        call.excinfo = pytest.ExceptionInfo.from_exception(error)
    return (yield)
