import pytest
import trio

from broker.broker import Broker
from broker.config import Config
from protocols.rest.adapter import RestOptions
from protocols.rest.app import make_app


@pytest.fixture
async def broker(tmp_path):
    """A broker on a directory of its own, its committer running."""
    broker = Broker.open(Config(data_dir=str(tmp_path / "data")))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        yield broker
        broker.stop()
        nursery.cancel_scope.cancel()
    broker.close()


@pytest.fixture
def app(broker):
    return make_app(broker, RestOptions(), broker.stopping)
