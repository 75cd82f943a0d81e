"""The size of a poll's conversion steps."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from braidlog.protocols.iggy.forms import BATCH_FORM, CRC_FORM, XXH_FORM
from braidlog.protocols.iggy.reading import _pieces, shown
from braidlog.storage.formats.iggy.classic import read_key
from braidlog.storage.formats.iggy.typed import IGGY_TYPED
from braidlog.storage.formats.record import Record

RECORDS = [Record(n, 1, value=bytes(100 * (n % 7) + 1), message_id=n + 1) for n in range(200)]
RECORDS[50].value = bytes(5000)


@pytest.mark.parametrize("form", [CRC_FORM, XXH_FORM, BATCH_FORM])
def test_messages_are_converted_in_pieces_of_whole_messages(form):
    form = replace(form, piece_bytes=2000)
    body = memoryview(IGGY_TYPED.encode(RECORDS, 0))
    body = body[read_key(body)[0] :]
    pieces = list(_pieces(form, [body[:0], body]))
    assert b"".join(pieces) == body
    for piece in pieces:
        messages = [message for _, message in form.codec.polled(piece)]
        assert sum(map(len, messages)) == len(piece)
        assert len(piece) <= form.piece_bytes or len(messages) == 1
    assert len(pieces) > 10


@pytest.mark.parametrize(("piece_bytes", "waits"), [(1 << 20, False), (2000, True)])
def test_only_a_large_answer_gives_way_to_other_tasks(piece_bytes, waits):
    form = replace(BATCH_FORM, piece_bytes=piece_bytes)
    context = SimpleNamespace(dialect=SimpleNamespace(form=form))
    body = IGGY_TYPED.readable(IGGY_TYPED.encode(RECORDS, 0))
    steps = shown(context, SimpleNamespace(index=0), [body])
    checkpoints = 0
    while True:
        try:
            next(steps).close()
        except StopIteration as end:
            assert sum(map(len, end.value)) > len(body) // 2
            break
        checkpoints += 1
    assert bool(checkpoints) is waits
