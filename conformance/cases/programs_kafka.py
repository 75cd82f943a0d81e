"""Programs in Java, Go, JavaScript and Python with today's Kafka clients and their defaults: every
codec, a group of three of which one dies, admin calls.
"""

import json
from http.client import HTTPConnection

from conformance.runner import Context, Skip
from conformance.today.programs import PROGRAMS, Unavailable
from conformance.today.scenario import PARTITIONS, Client, check_codec, check_group

NAMES = {f"{one.name} {one.version}".strip(): one for one in PROGRAMS}
CLIENTS = list(NAMES)
HTTP_S = 60.0


def run(context: Context) -> None:
    program = NAMES[context.client_names[0]]
    host, port = context.address("kafka")
    try:
        client = Client(program.command(), f"{host}:{port}")
    except Unavailable as reason:
        raise Skip(str(reason)) from None
    topic = context.topic()
    for name, partitions in ((topic, 1), (f"{topic}-g", PARTITIONS)):
        make(context, name, partitions)
    for number, codec in enumerate(program.codecs):
        check_codec(client, topic, codec, number)
    check_group(client, f"{topic}-g", f"g-{topic}")
    client.call("admin", f"{topic}-a")


def make(context: Context, topic: str, partitions: int) -> None:
    """A topic of so many partitions, before a client has one made by asking for it."""
    connection = HTTPConnection(*context.address("http"), timeout=HTTP_S)
    path = f"/api/v1/topics/public/default/{topic}"
    connection.request("PUT", path, json.dumps({"partitions": partitions}))
    assert connection.getresponse().status in (200, 201, 204)
    connection.close()
