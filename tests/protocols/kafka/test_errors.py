"""Broker errors to Kafka codes."""

import pytest

from braidlog.broker import errors
from braidlog.protocols.kafka.errors import WIRE_CODES, Code, wire_code

# Kafka 0.8.2 protocol guide, "Error codes".
SPOKEN_BY_0_8 = range(-1, 21)
LATER = {29, 30, 36, 44, 47, 56, 58, 74, 75, 100}


def test_every_broker_error_has_its_own_code() -> None:
    own = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert set(own) <= set(WIRE_CODES)


def test_no_error_is_a_success() -> None:
    assert Code.NONE not in WIRE_CODES.values()


def test_codes_after_0_8_are_few_and_named() -> None:
    assert {int(code) for code in WIRE_CODES.values() if code not in SPOKEN_BY_0_8} <= LATER


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.OffsetOutOfRange(5, 0, 3), 1),
        (errors.CorruptBatch("crc"), 2),
        (errors.PartitionNotFound("t/7"), 3),
        (errors.RecordTooLarge("size"), 10),
        (errors.InvalidName("a b"), 17),
        (errors.StorageFull("no space"), 56),
    ],
)
def test_code_of_an_error(error: errors.BrokerError, code: int) -> None:
    assert wire_code(error) == code


def test_a_plug_ins_error_has_the_code_of_its_base() -> None:
    class QuotaFull(errors.StorageFull):
        pass

    assert wire_code(QuotaFull("quota")) == Code.STORAGE_ERROR
