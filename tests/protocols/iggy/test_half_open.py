"""Peers with an unfinished frame, over real sockets: disconnected by the idle rules."""

import struct

import pytest
import trio

from braidlog.broker.limits import FRAME_STALL_S, SWEEP_S
from braidlog.protocols.iggy.session import LOGIN_S
from tests.protocols.iggy import description
from tests.protocols.iggy.recorded import conversation

V_LOGIN = next(row for row in conversation("v-server-0.9.0-edge.5.tsv") if "LOGIN" in row.name)
LOGIN = description.request(38, username="iggy", password="iggy", version="0.6.202", context="")
SEND = struct.pack("<II", 5000, 101) + bytes(100)
HALVES = {
    "a classic length": LOGIN[:3],
    "a classic login": LOGIN[:-1],
    "the first zeros of V": V_LOGIN.request[:40],
    "a login of V": V_LOGIN.request[:-1],
}


async def ended_after(talk) -> float:
    """Return the seconds until the broker closes the connection, on trio's clock."""
    begun = trio.current_time()
    with trio.fail_after(2 * FRAME_STALL_S):
        assert await talk.stream.receive_some(1) == b""
    return trio.current_time() - begun


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
async def test_half_a_frame_before_the_login(autojump_clock, connect, half):
    talk = await connect()
    await talk.stream.send_all(half)
    assert await ended_after(talk) <= LOGIN_S + SWEEP_S


@pytest.mark.parametrize("half", [SEND, SEND[:2], SEND[:8]], ids=["body", "length", "head"])
async def test_half_a_frame_after_the_login(autojump_clock, connect, half):
    talk = await connect()
    await talk.login()
    await talk.stream.send_all(half)
    took = await ended_after(talk)
    assert FRAME_STALL_S - SWEEP_S <= took <= FRAME_STALL_S + 2 * SWEEP_S


async def test_half_a_frame_of_v_after_the_login(autojump_clock, connect):
    talk = await connect()
    await talk.stream.send_all(V_LOGIN.request)
    answer = await talk.stream.receive_some(1024)
    assert answer[60] == 8
    await talk.stream.send_all(V_LOGIN.request[:100])
    assert await ended_after(talk) <= FRAME_STALL_S + 2 * SWEEP_S


async def test_a_silent_client_stays_after_its_login(autojump_clock, connect, broker):
    talk = await connect()
    await talk.login()
    await trio.sleep(10 * FRAME_STALL_S)
    assert await talk.status(1) == 0
