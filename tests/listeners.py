"""Listeners of a broker inside the test's own trio run."""

from contextlib import asynccontextmanager

import trio

from braidlog.broker.server import adapters
from braidlog.broker.server.listener import Listener, accept


@asynccontextmanager
async def open_listeners(broker):
    """Yield `connect`: `await connect("kafka")` returns a stream to that protocol's listener of
    `broker`.

    The first call opens the listener; settings of the adapter can be given by name then.
    """
    listeners = {}
    async with trio.open_nursery() as serving:

        async def connect(protocol, **options):
            if protocol not in listeners:
                adapter = adapters.load(protocol)
                listener = Listener(
                    name=protocol,
                    protocol=protocol,
                    adapter=adapter,
                    options=adapter.options_type(**options),
                    listen=("127.0.0.1", 0),
                    advertised=None,
                )
                if isinstance(adapter, adapters.Starting):
                    await adapter.start(broker, listener.options, loopback=True)
                listener.open()
                listeners[protocol] = broker.listeners[protocol] = listener
                serving.start_soon(accept, listener, broker, serving)
                if isinstance(adapter, adapters.Working):
                    serving.start_soon(adapter.work, broker, listener.options)
            return await trio.open_tcp_stream(*listeners[protocol].bound)

        yield connect
        serving.cancel_scope.cancel()
    for listener in listeners.values():
        listener.close()
