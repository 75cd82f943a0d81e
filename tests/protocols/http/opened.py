"""Fake open connections of Kafka."""

from types import SimpleNamespace

import trio

from braidlog.broker.access.rights import Principal
from braidlog.broker.server.written_topics import WrittenTopics


class Fake(SimpleNamespace):
    """An open connection, to keep in a set."""

    __hash__ = object.__hash__


def connection(number, *, is_open=True, library="librdkafka 2.12.1"):
    return Fake(
        id=number,
        protocol="kafka",
        listener_name="kafka",
        peer=f"10.0.0.1:{number}",
        principal=Principal("anna"),
        is_encrypted=True,
        is_open=is_open,
        library=library,
        traffic=lambda: (1000, 2000),
        heard_at=trio.current_time() - 1.5,
        written_topics=WrittenTopics(),
    )
