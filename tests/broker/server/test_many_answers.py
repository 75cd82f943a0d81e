"""Answers of many connections at once: each client gets its own, all of them, in order, while other
clients leave and their descriptors get new connections.
"""

import random

import pytest
import trio

from tests.broker.server.echo import EchoBench, framed, receive_frame

CLIENTS = 48
ROUNDS = 40


@pytest.fixture
async def echo(nursery):
    return EchoBench(nursery)


async def converse(echo, client, number, chance):
    """Send numbered texts and check the answers; now and then leave with answers on their way."""
    for turn in range(ROUNDS):
        texts = [b"%d/%d/%d" % (number, turn, part) for part in range(chance.randrange(1, 4))]
        await client.send_all(b"".join(framed(b"E" + text) for text in texts))
        if chance.random() < 0.05:
            await client.aclose()
            client = await echo.connect()
            continue
        for text in texts:
            assert await receive_frame(client) == text


async def test_each_client_gets_its_own_answers_while_others_leave(echo):
    chance = random.Random(1)
    clients = [await echo.connect() for _ in range(CLIENTS)]
    async with trio.open_nursery() as nursery:
        for number, client in enumerate(clients):
            nursery.start_soon(converse, echo, client, number, random.Random(chance.random()))
