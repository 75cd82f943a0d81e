import pytest

from braidlog.protocols.http.websocket.producer import java_hash


@pytest.mark.parametrize(
    ("text", "number"),
    # "".hashCode() of Java, without the sign bit; the last key has a character of two units.
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", 0), ("😀", 1772899)],
)
def test_hash_of_a_key_is_javas(text, number):
    assert java_hash(text) == number
