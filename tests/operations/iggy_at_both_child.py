"""Stock clients of two Iggy dialects send to topics of both brokers, at both brokers, and read as
group members and as single consumers. The exit code is 0 if all records are right.
"""

import asyncio
import os
import sys

import apache_iggy
import iggy_py


async def logged_in(client):
    await client.connect()
    await client.login_user("iggy", "iggy")
    return client


async def iggy_at_both(addresses):
    apache = [await logged_in(apache_iggy.IggyClient(address)) for address in addresses]
    python = [await logged_in(iggy_py.IggyClient(address)) for address in addresses]
    await apache[0].create_stream("shop")
    for number in range(4):
        await apache[number % 2].create_topic("shop", f"t{number}", 1)
        topic, expected = f"t{number}", []
        for at in (0, 1):
            for name, client, library in (
                ("a", apache[at], apache_iggy),
                ("p", python[at], iggy_py),
            ):
                values = [f"{name}{at}-{i}" for i in range(3)]
                messages = [library.SendMessage(value) for value in values]
                await client.send_messages("shop", topic, 0 if name == "a" else 1, messages)
                expected += values
        for client in python:
            polled = await client.poll_messages(
                "shop", topic, 1, iggy_py.PollingStrategy.Offset(0), 100, False
            )
            assert [bytes(message.payload()).decode() for message in polled] == expected
        for client in apache:
            polled = await client.poll_messages(
                "shop",
                topic,
                consumer=apache_iggy.Consumer.Single("reader"),
                polling_strategy=apache_iggy.PollingStrategy.Next(),
                count=6,
                auto_commit=True,
                partition_id=0,
            )
            payloads = [message.payload() for message in polled]
            assert [bytes(payload).decode() for payload in payloads] == expected[:6]
            del expected[:6]


if __name__ == "__main__":
    asyncio.run(iggy_at_both(sys.argv[1:]))
    os._exit(0)  # The library's own threads may abort an ending Python.
