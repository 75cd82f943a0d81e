"""A stock client of Iggy at a broker with authentication: logs in by the connection string, creates
a missing stream, sends, polls, and prints the results.
"""

import asyncio
import os
import sys

from apache_iggy import IggyClient, PollingStrategy, SendMessage


async def main(url: str) -> str:
    client = IggyClient.from_connection_string(url)
    try:
        await client.connect()
    except RuntimeError:
        return "refused"
    exists = await client.get_stream("shop") is not None
    if not exists:
        await client.create_stream("shop")
        await client.create_topic("shop", "cash", 1)
        await client.send_messages("shop", "cash", 0, [SendMessage("hello")])
    messages = await client.poll_messages("shop", "cash", 0, PollingStrategy.First(), 10, False)
    assert [message.payload() for message in messages] == [b"hello"]
    return f"{'found' if exists else 'made'} read"


print(asyncio.run(main(sys.argv[1])), flush=True)
os._exit(0)  # The library's own threads may abort an ending Python.
