"""A scenario with any published Python client of Iggy, in its own process.

The libraries share their names, and some abort a process that ends normally. `python
iggy_versions_child.py SCENARIO PACKAGE VERSION HOST:PORT` writes its observations as a JSON line.
The script uses only the standard library and the client: the oldest client needs an older Python.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys

package, version, address = sys.argv[2:5]
iggy = importlib.import_module(package.replace("-", "_"))
number = tuple(int(part) for part in version.split(".") if part.isdigit())
is_apache = package == "apache-iggy"
FIRST = 0 if is_apache and number >= (0, 6) else 1  # First number of the dialect.
COUNT = 100
SHARED = (499 + FIRST, FIRST)  # The oldest dialect chose 500 and 1.


async def result_of(result):
    """Return the result of a call, for clients with and without coroutines."""
    return await result if inspect.isawaitable(result) else result


async def error_of(result):
    """Return the name of the error, or None."""
    try:
        await result_of(result())
    except BaseException as error:
        return str(error) or type(error).__name__
    return None


async def logged_in():
    if "://" in address:  # Of another transport than TCP.
        client = iggy.IggyClient.from_connection_string(address)
    elif number <= (0, 2, 4) and not is_apache:
        client = iggy.IggyClient()
    else:
        client = iggy.IggyClient(address)
    await result_of(client.connect())
    await result_of(client.login_user("iggy", "iggy"))
    return client


async def make(client, stream, topic, partitions):
    if is_apache:
        await result_of(client.create_stream(stream))
        if number >= (0, 9, 1):
            partitions = iggy.TopicOptions(partitions_count=partitions)
        await result_of(client.create_topic(stream, topic, partitions))
    elif number <= (0, 1, 0):
        await result_of(client.create_stream(701, stream))
        await result_of(client.create_topic(701, 1, partitions, topic))
    elif number <= (0, 2, 4):
        chosen = 700 + number[2]
        await result_of(client.create_stream(stream, chosen))
        await result_of(client.create_topic(stream, topic, partitions, "none", 1, 1))
    else:
        await result_of(client.create_stream(stream))
        await result_of(client.create_topic(stream, topic, partitions))


async def send(client, stream, topic, partition, texts):
    messages = [iggy.SendMessage(text) for text in texts]
    await result_of(client.send_messages(stream, topic, partition, messages))


async def poll(client, stream, topic, strategy, *, count=COUNT, commit=False):
    """Return offset and text of a poll; `strategy` is a name, and an offset or time."""
    name, *value = strategy
    if number <= (0, 2, 4) and not is_apache:
        assert name == "Next"
        polling = client.poll_messages(stream, topic, FIRST, count, commit)
    elif is_apache and number >= (0, 9):
        polling = client.poll_messages(
            stream,
            topic,
            consumer=iggy.Consumer.Single("v-1"),
            polling_strategy=getattr(iggy.PollingStrategy, name)(*value),
            count=count,
            auto_commit=commit,
            partition_id=FIRST,
        )
    else:
        chosen = getattr(iggy.PollingStrategy, name)(*value)
        polling = client.poll_messages(stream, topic, FIRST, chosen, count, commit)
    texts = []
    for message in await result_of(polling):
        payload = message.payload()
        text = payload if isinstance(payload, str) else bytes(payload).decode()
        texts.append([message.offset(), text])
    return texts


async def work():
    """Create a topic, send, and read by every call of the client; then send a line to the shared
    topic.
    """
    client = await logged_in()
    stream = f"{package}-{version}" if number > (0, 1, 0) else 701
    await make(client, f"{package}-{version}", "tp", 2)
    seen = {"again": await error_of(lambda: client.create_stream(f"{package}-{version}"))}
    if number <= (0, 2, 4) and not is_apache:
        seen = {}  # There the caller chooses the numbers, and an error's text differs.
    topic = "tp" if number > (0, 1, 0) else 1
    await send(client, stream, topic, FIRST, [f"m{at}" for at in range(5)])
    await send(client, stream, topic, FIRST + 1, ["elsewhere"])
    strategies = [("Next",)]
    if is_apache or number > (0, 2, 4):
        strategies += [("First",), ("Last",), ("Offset", 3), ("Timestamp", 0)]
    for strategy in strategies:
        seen[strategy[0]] = await poll(client, stream, topic, strategy, count=3)
    seen["committed"] = [
        *await poll(client, stream, topic, ("Next",), count=3, commit=True),
        *await poll(client, stream, topic, ("Next",), count=3, commit=True),
    ]
    await send(client, *SHARED, FIRST, [f"from {package} {version}"])
    if hasattr(client, "get_stream"):
        shared = await result_of(client.get_stream("shared"))
        seen["number"] = shared.id - FIRST
    return seen


async def number_zero():
    """Name the first stream and topic by number 0, as getting-started programs do since D4."""
    client = await logged_in()
    await make(client, "sample-stream", "sample-topic", 1)
    stream = await result_of(client.get_stream(0))
    topic = await result_of(client.get_topic(0, 0))
    await send(client, 0, 0, 0, ["message-1", "message-2"])
    polled = await poll(client, 0, 0, ("First",))
    return [stream.id, stream.name, topic.id, topic.name, [text for _, text in polled]]


async def read_shared():
    """Return this client's view of all clients' messages."""
    return await poll(await logged_in(), *SHARED, ("Next",))


async def group():
    """Return the messages of two members of a group, for clients with groups.

    A client becomes a member when it begins to consume. So nothing is sent before both are members:
    a line on standard input tells that.
    """
    first, second, writer = await logged_in(), await logged_in(), await logged_in()
    stream = f"group-{version}"
    await make(first, stream, "tp", 2)
    import datetime

    interval = datetime.timedelta(milliseconds=5)
    name = "polling_retry_interval" if number >= (0, 9, 1) else "poll_interval"

    async def member(client):
        return await result_of(
            client.consumer_group(
                "grp",
                stream,
                "tp",
                None,
                iggy.PollingStrategy.Next(),
                10,
                iggy.AutoCommit.When(iggy.AutoCommitWhen.PollingMessages()),
                **{name: interval},
            )
        )

    members = [await member(first), await member(second)]
    read = [[], []]
    enough = asyncio.Event()

    async def reading(at):
        async def got(message):
            payload = message.payload()
            read[at].append(payload if isinstance(payload, str) else bytes(payload).decode())
            if sum(map(len, read)) >= 6:
                enough.set()

        await members[at].consume_messages(got, enough)

    async def sending():
        await asyncio.to_thread(sys.stdin.readline)
        for partition in (FIRST, FIRST + 1):
            texts = [f"{partition - FIRST}-{at}" for at in range(3)]
            await send(writer, stream, "tp", partition, texts)

    await asyncio.gather(reading(0), reading(1), sending())
    return sorted(read)


async def text_options():
    """Create a topic with options as texts, the only form of Python's client for most options."""
    client = await logged_in()
    await result_of(client.create_stream("texts"))
    options = {"segment_size": "128 MiB", "enforce_fsync": "true", "message_expiry": "1h 30m"}
    await result_of(client.create_topic("texts", "tp", 1, options=options))
    bad = {"segment_size": "much"}
    refused = await error_of(lambda: client.create_topic("texts", "bad", 1, options=bad))
    topic = await result_of(client.get_topic("texts", "tp"))
    return [topic.name, refused]


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (work, read_shared, group, number_zero, text_options)
}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(SCENARIOS[sys.argv[1]]())), flush=True)
    os._exit(0)
