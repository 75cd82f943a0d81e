"""Columns of compressed sets that unpack to more than a piece of memory."""

from types import SimpleNamespace

import pytest

from braidlog.storage.formats.kafka.set_columns import columns_of
from braidlog.storage.large import LARGE_BYTES_MIN
from tests.storage.formats.kafka.test_message_sets import entry, message, wrapper


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_large_sets_have_the_columns_of_their_messages(codec):
    values = [bytes([number]) * 50_000 for number in range(250)]
    inner = b"".join(entry(at, message(b"key", value)) for at, value in enumerate(values))
    assert len(inner) > LARGE_BYTES_MIN
    body = memoryview(wrapper(inner, codec, len(values) - 1))
    batch = SimpleNamespace(body=body, header=SimpleNamespace(append_us=5, base_offset=0))
    columns = columns_of([batch])
    assert list(columns.offset) == list(range(len(values)))
