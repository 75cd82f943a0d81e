"""A large SEND is prepared in a thread: another append may overtake the SEND once,
and then waits.
"""

import trio

from braidlog.protocols.iggy import sending
from tests.protocols.iggy.talk import FIRST, OK
from tests.protocols.iggy.test_sending import tiny
from tests.waiting import until


async def test_an_overtaken_large_send_is_prepared_again_and_others_wait(
    connect, talk, nursery, monkeypatch
):
    await talk.create_topic()
    early, late = await connect(), await connect()
    assert [await early.login(), await late.login()] == [0, 0]
    prepare, offsets, answers = sending._prepare, [], []

    async def send_late():
        answers.append(await late.send(b"late"))

    def overtaken(context, request, base_offset, append_us):
        if len(request.messages) < sending.LARGE_BYTES:
            return prepare(context, request, base_offset, append_us)
        offsets.append(base_offset)
        if len(offsets) == 1:
            assert trio.from_thread.run(early.send, b"early") == 0
        else:
            trio.from_thread.run_sync(nursery.start_soon, send_late)
            waiting = context.shared.large_sends.statistics
            trio.from_thread.run(until, lambda: waiting().tasks_waiting)
        return prepare(context, request, base_offset, append_us)

    monkeypatch.setattr(sending, "_prepare", overtaken)
    count = 20_000
    assert await talk.exchange(tiny(count)) == OK
    await until(lambda: answers)
    assert (offsets, answers) == ([0, 1], [0])
    payloads = await talk.payloads(FIRST, count=count + 2)
    assert payloads == [b"early", *(b"%d" % n for n in range(count)), b"late"]


async def test_a_send_that_is_always_overtaken_is_still_stored(connect, talk, monkeypatch):
    await talk.create_topic()
    other = await connect()
    await other.login()
    prepare, tries = sending._prepare, []

    def overtaken(context, request, base_offset, append_us):
        if len(request.messages) < sending.LARGE_BYTES:
            return prepare(context, request, base_offset, append_us)
        tries.append(base_offset)
        if len(tries) <= sending.LARGE_TRIES:
            context.shared.gated.clear()  # As if the append were of another protocol.
            assert trio.from_thread.run(other.send, b"other") == 0
        return prepare(context, request, base_offset, append_us)

    monkeypatch.setattr(sending, "_prepare", overtaken)
    assert await talk.exchange(tiny(20_000)) == OK
    assert tries[: sending.LARGE_TRIES] == [*range(sending.LARGE_TRIES)]
    payloads = await talk.payloads(FIRST, count=30_000)
    assert payloads[: sending.LARGE_TRIES] == [b"other"] * sending.LARGE_TRIES
    assert payloads[sending.LARGE_TRIES :] == [b"%d" % n for n in range(20_000)]
