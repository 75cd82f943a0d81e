"""A scenario with the real iggy-py, in its own process: the library sometimes aborts a process that
ends normally.

`python -m tests.clients.iggy_py_child SCENARIO HOST:PORT [ARGUMENT ...]` writes its observations as
a JSON line. Payloads are text: the library sends nothing else.
"""

import ast
import asyncio
import json
import os
import sys

from iggy_py import IggyClient, PollingStrategy, SendMessage

STREAM, TOPIC = "st", "tp"
SEND_BATCH = 500
# Errors of calls while the library finds a lost connection and connects again.
LOST = ("NotConnected", "Disconnected")
CONNECT_TRIES, CONNECT_PAUSE_S = 600, 0.1
LOGIN_TRIES = 10


async def logged_in(address):
    client = IggyClient(address)
    await client.connect()
    await client.ping()
    await client.login_user("iggy", "iggy")
    return client


async def outcome_of(awaitable):
    """Return the error's text, or the result without an error."""
    try:
        return repr(await awaitable)
    except RuntimeError as error:
        return str(error)


async def polled(client, strategy, count, *, commit=False, partition=1):
    messages = await client.poll_messages(STREAM, TOPIC, partition, strategy, count, commit)
    return [(message.offset(), message.payload().decode()) for message in messages]


async def make(address, partitions):
    """Create a stream and a topic; return the client's view of them."""
    client = await logged_in(address)
    before = await client.get_stream(STREAM), await client.get_topic(STREAM, TOPIC)
    await client.create_stream(STREAM)
    await client.create_topic(STREAM, TOPIC, int(partitions))
    stream, topic = await client.get_stream(STREAM), await client.get_topic(STREAM, TOPIC)
    by_number = await client.get_topic(stream.id, topic.id)
    return {
        "before": before,
        "stream": [stream.id, stream.name, stream.messages_count, stream.topics_count],
        "topic": [topic.id, topic.name, topic.messages_count],
        "by_number": by_number.name,
    }


async def refusals(address):
    """Return the library's texts for refused calls."""
    client = await logged_in(address)
    stranger = IggyClient(address)
    await stranger.connect()
    return {
        "login": await outcome_of(stranger.login_user("iggy", "wrong")),
        "stream": await outcome_of(client.create_stream(STREAM)),
        "topic": await outcome_of(client.create_topic(STREAM, TOPIC, 1)),
        "partition": await outcome_of(client.send_messages(STREAM, TOPIC, 9, [SendMessage("x")])),
        "missing": await outcome_of(client.send_messages(STREAM, "nope", 1, [SendMessage("x")])),
        "count": await outcome_of(polled(client, PollingStrategy.First(), 0)),
    }


async def send(address, start, end, partition="1"):
    """Send numbers as text, in batches."""
    client = await logged_in(address)
    numbers = [SendMessage(str(number)) for number in range(int(start), int(end))]
    for at in range(0, len(numbers), SEND_BATCH):
        await client.send_messages(STREAM, TOPIC, int(partition), numbers[at : at + SEND_BATCH])
    return len(numbers)


async def strategies(address):
    """Return a poll with each strategy of the library; commit nothing."""
    client = await logged_in(address)
    results = {
        "first": await polled(client, PollingStrategy.First(), 3),
        "last": await polled(client, PollingStrategy.Last(), 3),
        "offset": await polled(client, PollingStrategy.Offset(1234), 2),
        "beyond": await polled(client, PollingStrategy.Offset(10**9), 2),
        "next": await polled(client, PollingStrategy.Next(), 2),
        "next again": await polled(client, PollingStrategy.Next(), 2),
        "long ago": await polled(client, PollingStrategy.Timestamp(1), 2),
    }
    (message,) = await client.poll_messages(
        STREAM, TOPIC, 1, PollingStrategy.Offset(1234), 1, False
    )
    at = await polled(client, PollingStrategy.Timestamp(message.timestamp()), 1)
    results["timestamp"] = at[0][0] <= 1234  # All messages of a SEND have the same time.
    results["message"] = [
        str(message.state()).rpartition(".")[2],
        message.length(),
        message.id() > 0,
        message.checksum(),
    ]
    return results


async def read(address, count, batch):
    """Return up to `count` messages as consumer 1, committed poll by poll."""
    client = await logged_in(address)
    messages = []
    while len(messages) < int(count):
        wanted = min(int(batch), int(count) - len(messages))
        polled_messages = await polled(client, PollingStrategy.Next(), wanted, commit=True)
        if not polled_messages:
            break
        messages += polled_messages
    return messages


async def over_a_restart(address):
    """Use a client before and after a restart of the broker, which the parent does in between."""
    client = await logged_in(address)
    before = await polled(client, PollingStrategy.Next(), 10, commit=True)
    print("restart", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    refused = await connected(lambda: polled(client, PollingStrategy.Next(), 10))
    # The library reconnects, but does not log in again.
    for _ in range(LOGIN_TRIES):
        await connected(lambda: client.login_user("iggy", "iggy"))
        after = await outcome_of(polled(client, PollingStrategy.Next(), 10, commit=True))
        if after not in ("Unauthenticated", *LOST):
            break
    return {"before": before, "refused": refused, "after": ast.literal_eval(after)}


async def connected(ask):
    """Return the result of `ask`, as text.

    The library's heartbeat also finds a lost connection: during the reconnection, which takes five
    seconds, every other call is refused.
    """
    for _ in range(CONNECT_TRIES):
        if (answer := await outcome_of(ask())) not in LOST:
            return answer
        await asyncio.sleep(CONNECT_PAUSE_S)
    raise RuntimeError("the client did not connect again")


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (make, refusals, send, strategies, read, over_a_restart)
}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(SCENARIOS[sys.argv[1]](*sys.argv[2:]))), flush=True)
    os._exit(0)
