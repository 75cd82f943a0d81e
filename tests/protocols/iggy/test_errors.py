"""Error numbers."""

from braidlog.broker import errors
from braidlog.protocols.iggy.errors import WIRE_CODES, Absent, ErrorCode, Refusal, wire_code


def test_every_broker_error_has_a_number():
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    assert kinds == set(WIRE_CODES)


def test_error_of_a_plug_in_gets_the_number_of_its_base():
    class Fuller(errors.StorageFull):
        pass

    assert wire_code(Fuller()) is ErrorCode.CANNOT_APPEND_MESSAGE
    assert wire_code(errors.BrokerError()) is ErrorCode.ERROR


def test_refusal_says_its_number_in_words_unless_it_has_better_ones():
    assert str(Absent(ErrorCode.STREAM_ID_NOT_FOUND)) == "stream id not found"
    assert str(Refusal(ErrorCode.ERROR, "because")) == "because"
