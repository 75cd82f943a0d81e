"""The output format of `braidlog log dump`."""

import pytest

from braidlog.broker.cli.dump import offsets_text


@pytest.mark.parametrize(
    ("offset", "next_offset", "text"),
    [
        (5, None, "from offset 5 on"),
        (5, 5, "from offset 5 on"),
        (5, 6, "offset 5"),
        (5, 9, "offsets 5 to 8"),
    ],
)
def test_offsets_are_inclusive_ranges(offset, next_offset, text):
    assert offsets_text(offset, next_offset) == text
