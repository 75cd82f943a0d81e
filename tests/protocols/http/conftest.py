import socket

import pytest
import trio

from braidlog.protocols.http.adapter import ADAPTER
from braidlog.protocols.http.app import make_app
from braidlog.protocols.http.options import RestOptions
from tests.protocols.http.asgi import bare_broker
from tests.waiting import until


@pytest.fixture
def app(request, broker):
    """Return the HTTP listener's application over `broker`; indirect parameters
    give the options.
    """
    return make_app(broker, RestOptions(**getattr(request, "param", {})), broker.stopping)


@pytest.fixture
def counted(tmp_path):
    """Return the listener's broker."""
    return bare_broker(str(tmp_path))


@pytest.fixture
async def listener(nursery, counted):
    """Yield the address of a serving listener, and the event that stops the listener."""
    broker = counted
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        listening.listen(16)
        stopping = trio.Event()
        done = trio.Event()

        async def serve():
            await ADAPTER.serve(broker, [listening], RestOptions(), stopping)
            done.set()

        nursery.start_soon(serve)
        yield listening.getsockname(), stopping, done
        stopping.set()
        await until(done.is_set)
        assert listening.fileno() >= 0  # The server must not close the socket.
