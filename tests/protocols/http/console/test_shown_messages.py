"""Messages as the console shows them."""

import pytest

from braidlog.protocols.http.console.shown_messages import INDENTED_BYTES_MAX, pretty


def test_json_is_indented_by_its_levels():
    assert pretty(b'{"a":["]]]]",1]}') == '{\n  "a": [\n    "]]]]",\n    1\n  ]\n}'


@pytest.mark.parametrize(
    "json",
    [
        b"[" * 900 + b"1," * 20_000 + b"1" + b"]" * 900,
        b'["' + b"]" * 4000 + b'",' + b"[" * 900 + b"1," * 20_000 + b"1" + b"]" * 901,
        b"[" + b"1," * (INDENTED_BYTES_MAX // 2) + b"1]",
    ],
    ids=["deep", "deep behind brackets in a text", "large"],
)
def test_json_that_would_grow_much_is_not_indented(json):
    assert pretty(json) == json.decode()
