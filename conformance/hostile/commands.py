"""All attackable protocols."""

from conformance.hostile import (
    rows_http,
    rows_iggy,
    rows_iggy_http,
    rows_iggy_websocket,
    rows_kafka,
    rows_pulsar,
    rows_pulsar_websocket,
    rows_zookeeper,
)
from conformance.hostile.rows import Protocol
from conformance.server import ANY_PORT

# Listeners that are off by default.
OPTIONAL = dict.fromkeys(("iggy-websocket", "iggy-http", "zookeeper"), ANY_PORT)


def protocols() -> dict[str, Protocol]:
    """Return the attack on each listener, by its name."""
    iggy = (rows_iggy, rows_iggy_websocket, rows_iggy_http)
    pulsar = (rows_pulsar, rows_pulsar_websocket)
    modules = (rows_kafka, *pulsar, *iggy, rows_http, rows_zookeeper)
    return {protocol.name: protocol for protocol in (module.protocol() for module in modules)}
