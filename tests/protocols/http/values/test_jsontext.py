import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.protocols.http.values.jsontext import (
    EVERYWHERE,
    OBJECT,
    OBJECTS,
    RepeatedName,
    TooMany,
    check_names,
    compact,
    elements,
    has_every_member,
    is_deep,
    unescaped,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
QUICK = settings(max_examples=60, deadline=None)


@QUICK
@given(value=st.lists(VALUES, max_size=6), indent=st.sampled_from([None, 2]))
def test_elements_of_an_array_are_found(value, indent):
    text = json.dumps(value, indent=indent).encode()
    assert [json.loads(element) for element in elements(text, 6)] == value


@QUICK
@given(value=st.dictionaries(st.text(max_size=6), VALUES, max_size=5))
def test_members_of_an_object_are_counted(value):
    assert len(elements(json.dumps(value).encode(), 5)) == len(value)


@pytest.mark.parametrize("text", [b"[{},{},{}]", b'{"a":"","b":"","c":""}', b"[1,2,3"])
def test_elements_above_the_limit_are_not_read(text):
    with pytest.raises(TooMany):
        elements(text, 1)


def test_strings_may_contain_structural_characters():
    text = rb'["a,]\"[", "\\", "{\"x\": 1}"]'
    assert [json.loads(element) for element in elements(text, 3)] == ['a,]"[', "\\", '{"x": 1}']


@QUICK
@given(value=VALUES)
def test_compact_removes_blanks_only(value):
    text = json.dumps(value, indent=3).encode()
    assert json.loads(compact(text)) == value
    assert compact(text) == json.dumps(value, separators=(",", ":")).encode()


def test_depth_is_counted_outside_of_strings():
    assert not is_deep(b'["' + b"[" * 500 + b'"]')
    assert is_deep(b"[" * 101 + b"]" * 101)
    assert not is_deep(b"[" * 100 + b"]" * 100)


@QUICK
@given(value=VALUES, escaped=st.booleans())
def test_names_that_differ_are_accepted(value, escaped):
    text = json.dumps(value)
    if escaped:
        text = text.replace(":", "\\u003a").replace("\\u003a ", ": ")
    check_names(text.encode())


@pytest.mark.parametrize(
    ("within", "text"),
    [
        (EVERYWHERE, b'{"a": 1, "a": 1}'),
        (EVERYWHERE, b'[0, {"b": [{"a": 1, "\\u0061": 2}]}]'),
        (EVERYWHERE, b'{"a": 1e999, "b": "\\u003A", "a": 1}'),
        (EVERYWHERE, b'{"a:": 1, "a\\u003a": 2}'),
        (EVERYWHERE, b'{"a\\\\\\u003a": 1, "a": "\\\\u003a", "a": ""}'),
        (OBJECT, b'{"a": {}, "a": {"b": 1}}'),
        (OBJECTS, b'[{"a": 1}, {"a": ":", "b": ":", "a": 2}]'),
    ],
)
def test_a_repeated_name_is_refused(within, text):
    with pytest.raises(RepeatedName):
        check_names(text, within)


def test_inner_objects_are_ignored_on_request():
    check_names(b'{"a": {"b": 1, "b": 2}}', OBJECT)
    check_names(b'[{"a": {"b": 1, "b": 2}}]', OBJECTS)


def test_a_value_that_lost_a_member_is_noticed():
    assert has_every_member(b'{"a": ":", "b": null}', {"a": ":", "b": None})
    assert not has_every_member(b'{"a": 1, "a": 2}', {"a": 2})
    assert not has_every_member(b'{"a": "\\u003a", "a": 2}', {"a": ":2"})


@QUICK
@given(st.text(), st.booleans(), st.sampled_from(["", " "]))
def test_the_content_of_a_string_without_escapes(text, is_ascii, blank):
    written = (json.dumps(text, ensure_ascii=is_ascii) + blank).encode(errors="surrogatepass")
    content = unescaped(written)
    if b"\\" in written or blank:
        assert content is None
    else:
        assert content == text.encode()


@pytest.mark.parametrize("text", [b"1", b"[]", b'["a"]', b'{"a":"b"}', b"null", b'"a\\n"'])
def test_other_json_is_no_string_without_escapes(text):
    assert unescaped(text) is None
