"""Opens a broker inside the test's own trio run."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import load
from braidlog.broker.limits import STATE_LIMITS, StateLimits
from tests import turns


@asynccontextmanager
async def opened_broker(
    data_dir: Path,
    settings: Mapping[str, str],
    run: int = 1,
    limits: StateLimits = STATE_LIMITS,
) -> AsyncIterator[Broker]:
    """Yield a broker with a running committer and no open listener; its turns are watched, as
    `turns.watch` does in that run of the test.
    """
    flags = [("data_dir", str(data_dir), "test")]
    flags += [(*setting, "test") for setting in settings.items()]
    opened = Broker.open(load(environment={}, file="/dev/null", flags=flags), limits=limits)
    watch = turns.watch(run)
    trio.lowlevel.add_instrument(watch)
    async with trio.open_nursery() as running:
        running.start_soon(opened.run)
        opened.ready.set()
        yield opened
        opened.stop()
        running.cancel_scope.cancel()
    opened.close()
    watch.close()
