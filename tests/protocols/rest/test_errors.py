"""Every broker error has an answer of its own, and the numbers are well formed."""

from broker import errors as broker_errors
from broker.errors import BrokerError
from protocols.rest import errors
from protocols.rest.errors import WIRE_CODES, WireCode


def all_codes() -> list[WireCode]:
    own = [value for value in vars(errors).values() if isinstance(value, WireCode)]
    return list({code.number: code for code in [*own, *WIRE_CODES.values()]}.values())


def test_numbers_begin_with_their_status():
    for code in all_codes():
        assert code.number // 100 == code.status, code


def test_each_number_has_one_name_and_each_name_one_number():
    names = [code.code for code in all_codes()]
    assert len(set(names)) == len(names)
    for wire in [*WIRE_CODES.values()]:
        assert wire in all_codes()


def test_an_error_is_told_by_its_own_class():
    for kind in BrokerError.__subclasses__():
        if kind.__module__ != broker_errors.__name__:
            continue
        error = kind(5, 0, 3) if kind is broker_errors.OffsetOutOfRange else kind("why")
        assert errors.wire_code(error) is WIRE_CODES[kind]


def test_what_a_client_may_try_again_is_429_or_503():
    again = {broker_errors.LimitExceeded, broker_errors.ShuttingDown, broker_errors.StorageFull}
    for kind in again:
        assert WIRE_CODES[kind].status in (429, 503)
