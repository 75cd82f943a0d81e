"""Each layout of a SEND gets its own stored body."""

import pytest

from braidlog.storage.errors import CorruptBody
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.iggy.prepare import SentForm, prepare
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from conformance.mapping import iggy_forms

PACK = {
    SentForm.CLASSIC: iggy_forms.sent_classic,
    SentForm.UNTYPED: iggy_forms.sent_untyped,
    SentForm.TYPED: iggy_forms.sent_typed,
    SentForm.BATCH: iggy_forms.sent_batch,
    SentForm.PRODUCER_BATCH: iggy_forms.sent_producer_batch,
}


@pytest.mark.parametrize("form", SentForm)
def test_every_form_is_stored_with_offsets_and_key(form: SentForm) -> None:
    sent = memoryview(PACK[form]([Record(0, 0, value=b"a"), Record(1, 0, value=b"b")]))
    count = 2 if form in (SentForm.BATCH, SentForm.PRODUCER_BATCH) else None
    prepared = prepare(form, sent, count, 70, 5_000, b"key")
    is_classic = form is SentForm.CLASSIC
    assert prepared.body_format == (BodyFormat.IGGY if is_classic else BodyFormat.IGGY_TYPED)
    decoded = codec_for(prepared.body_format).decode(prepared.body, 70, 5_000)
    assert [(record.offset, record.key, record.value) for record in decoded.records] == [
        (70, b"key", b"a"),
        (71, b"key", b"b"),
    ]


@pytest.mark.parametrize("form", SentForm)
def test_a_message_that_is_cut_is_refused(form: SentForm) -> None:
    sent = memoryview(PACK[form]([Record(0, 0, value=b"a")]))
    with pytest.raises(CorruptBody):
        prepare(form, sent[:-1], 1, 0, 0, None)
