"""Every broker error has its own answer, and the numbers are well formed."""

import re
from pathlib import Path

from braidlog.broker import errors as broker_errors
from braidlog.broker.errors import BrokerError
from braidlog.protocols.http import errors
from braidlog.protocols.http.errors import WIRE_CODES, WireCode


def all_codes() -> list[WireCode]:
    own = [value for value in vars(errors).values() if isinstance(value, WireCode)]
    return list({*own, *WIRE_CODES.values()})


def test_numbers_begin_with_their_status():
    for code in all_codes():
        assert code.number // 100 == code.status, code


def test_numbers_and_names_are_unique():
    codes = all_codes()
    assert len({code.code for code in codes}) == len(codes)
    assert len({code.number for code in codes}) == len(codes)


def test_the_documents_list_every_code():
    page = (Path(__file__).parents[3] / "docs/api.md").read_text()
    rows = re.findall(r"^\| (\d{3}) \| (\d{5}) \| (\w+) \|$", page, re.MULTILINE)
    listed = [(int(status), int(number), code) for status, number, code in rows]
    assert listed == sorted((code.status, code.number, code.code) for code in all_codes())


def test_a_plug_ins_error_is_its_nearest_base():
    class ListenersError(broker_errors.TopicNotFound):
        """An error of a third-party listener."""

    assert errors.wire_code(ListenersError("why")) is errors.TOPIC_NOT_FOUND


def test_an_error_has_the_code_of_its_class():
    for kind in BrokerError.__subclasses__():
        if kind.__module__ != broker_errors.__name__:
            continue
        error = kind(5, 0, 3) if kind is broker_errors.OffsetOutOfRange else kind("why")
        assert errors.wire_code(error) is WIRE_CODES[kind]


def test_retriable_errors_are_429_or_503():
    again = {broker_errors.LimitExceeded, broker_errors.ShuttingDown, broker_errors.StorageFull}
    for kind in again:
        assert WIRE_CODES[kind].status in (429, 503)
