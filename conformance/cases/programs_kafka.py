"""Programs in Java, Go, JavaScript and Python with today's Kafka clients and their defaults: every
codec, a group of three of which one dies, admin calls.
"""

from conformance.runner import Context, Skip
from conformance.today.programs import PROGRAMS, Unavailable
from conformance.today.scenario import PARTITIONS, Client, check_codec, check_group

NAMES = {f"{one.name} {one.version}".strip(): one for one in PROGRAMS}
CLIENTS = list(NAMES)


def run(context: Context) -> None:
    program = NAMES[context.client_names[0]]
    host, port = context.address("kafka")
    try:
        client = Client(program.command(), f"{host}:{port}")
    except Unavailable as reason:
        raise Skip(str(reason)) from None
    topic = context.topic()
    for name, partitions in ((topic, 1), (f"{topic}-g", PARTITIONS)):
        context.make_topic(name, partitions)
    for number, codec in enumerate(program.codecs):
        check_codec(client, topic, codec, number)
    check_group(client, f"{topic}-g", f"g-{topic}")
    client.call("admin", f"{topic}-a")
