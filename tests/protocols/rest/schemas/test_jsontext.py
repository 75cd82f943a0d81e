import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.rest.schemas.jsontext import TooMany, compact, elements, is_deep

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
QUICK = settings(max_examples=60, deadline=None)


@QUICK
@given(value=st.lists(VALUES, max_size=6), indent=st.sampled_from([None, 2]))
def test_elements_of_an_array_are_what_it_was_made_of(value, indent):
    text = json.dumps(value, indent=indent).encode()
    assert [json.loads(one) for one in elements(text, 6)] == value


@QUICK
@given(value=st.dictionaries(st.text(max_size=6), VALUES, max_size=5))
def test_members_of_an_object_are_counted(value):
    assert len(elements(json.dumps(value).encode(), 5)) == len(value)


@pytest.mark.parametrize("text", [b"[{},{},{}]", b'{"a":"","b":"","c":""}', b"[1,2,3"])
def test_more_than_are_taken_are_not_looked_at(text):
    with pytest.raises(TooMany):
        elements(text, 1)


def test_strings_may_hold_what_looks_like_structure():
    text = rb'["a,]\"[", "\\", "{\"x\": 1}"]'
    assert [json.loads(one) for one in elements(text, 3)] == ['a,]"[', "\\", '{"x": 1}']


@QUICK
@given(value=VALUES)
def test_compact_says_the_same_without_blanks(value):
    text = json.dumps(value, indent=3).encode()
    assert json.loads(compact(text)) == value
    assert compact(text) == json.dumps(value, separators=(",", ":")).encode()


def test_depth_is_counted_outside_of_strings():
    assert not is_deep(b'["' + b"[" * 500 + b'"]')
    assert is_deep(b"[" * 101 + b"]" * 101)
    assert not is_deep(b"[" * 100 + b"]" * 100)
