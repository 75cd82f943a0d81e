"""Error numbers."""

from braidlog.broker import errors
from braidlog.protocols.iggy.errors import WIRE_CODES, Absent, ErrorCode, Refusal, wire_code


def test_every_broker_error_has_a_number():
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    assert kinds == set(WIRE_CODES)


def test_a_plug_ins_error_gets_the_number_of_its_base():
    class Fuller(errors.StorageFull):
        pass

    assert wire_code(Fuller()) is ErrorCode.CANNOT_APPEND_MESSAGE
    assert wire_code(errors.BrokerError()) is ErrorCode.ERROR


def test_a_refusal_has_its_own_text_or_that_of_its_number():
    assert str(Absent(ErrorCode.STREAM_ID_NOT_FOUND)) == "stream id not found"
    assert str(Refusal(ErrorCode.ERROR, "because")) == "because"
