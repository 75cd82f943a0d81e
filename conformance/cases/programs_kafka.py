"""Programs in Java, Go, JavaScript and Python with today's Kafka clients and their defaults: every
codec, a group of three with a dying member, admin calls, and refusals of unserved requests.
"""

from conformance.runner import Context, Skip
from conformance.today.programs import PROGRAMS, ProgramUnavailable
from conformance.today.scenario import (
    PARTITIONS,
    ClientProgram,
    check_codec,
    check_group,
    check_refusal,
)

NAMES = {f"{program.name} {program.version}".strip(): program for program in PROGRAMS}
CLIENTS = list(NAMES)
LOOKING = ("kcat",)  # These programs create no topics.


def run(context: Context) -> None:
    program = NAMES[context.client_names[0]]
    host, port = context.address("kafka")
    try:
        client = ClientProgram(program.command(), f"{host}:{port}")
    except ProgramUnavailable as reason:
        raise Skip(str(reason)) from None
    topic = context.topic()
    is_ours = "http" in context.addresses
    if not program.codecs and not is_ours:
        raise Skip("what other brokers serve is not refused by them")
    if not program.makes_topics:
        client.create(topic, 1)
    for number, codec in enumerate(program.codecs):
        check_codec(client, topic, codec, number)
    if "group" in program.tries:
        client.create(f"{topic}-g", PARTITIONS)
        check_group(client, f"{topic}-g", f"g-{topic}")
    # The programs check their changes at once; a real Kafka shows a change a moment later.
    if "admin" in program.tries and is_ours:
        if program.name in LOOKING:
            client.create(f"{topic}-a", PARTITIONS)
        client.call("admin", f"{topic}-a")
    if not program.codecs:
        check_refusal(client, topic)
