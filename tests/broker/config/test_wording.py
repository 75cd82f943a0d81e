"""The words for values that cannot be read, made of the libraries' real errors."""

import json
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from braidlog.broker.config.wording import ValueFault, explain, fault_of


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    mode: Literal["a", "b"] = "a"
    of: Literal["x"] | None = None


class WordedBody(msgspec.Struct, forbid_unknown_fields=True):
    number: Annotated[int, Meta(ge=1, le=5)] = 1
    numbers: (
        Annotated[list[Annotated[int, Meta(gt=0)]], Meta(min_length=1, max_length=2)] | None
    ) = None
    name: Annotated[str, Meta(pattern="^a+$")] = "a"
    short: Annotated[str, Meta(max_length=3, min_length=1)] = "a"
    pair: tuple[int, int] = (1, 1)
    texts: dict[str, str] = {}
    inners: dict[str, Inner] = {}
    inner: Inner | None = None
    listed: list[Inner] = []
    block: Annotated[int, Meta(multiple_of=512)] = 512
    part: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    switch: bool = False
    data: bytes = b""
    time: int | str | None = None


class Needed(msgspec.Struct):
    subject: str


FAULTS = {
    '{"number": "x"}': "number: expected a whole number, not text",
    '{"number": 1.5}': "number: expected a whole number, not a decimal number",
    '{"number": 0}': "number: expected a whole number of at least 1",
    '{"number": 9999999999999999999999}': "number: expected a whole number of at most 5",
    '{"numbers": "x"}': "numbers: expected a list or null, not text",
    '{"numbers": []}': "numbers: expected a list of at least 1 entry",
    '{"numbers": [1, 2, 3]}': "numbers: expected a list of at most 2 entries",
    '{"numbers": [1, 0]}': "numbers[1]: expected a whole number of at least 1",
    '{"name": "b"}': "name: expected text that matches '^a+$'",
    '{"short": ""}': "short: expected text of at least 1 character",
    '{"short": "aaaa"}': "short: expected text of at most 3 characters",
    '{"pair": [1]}': "pair: expected a list of 2 entries",
    '{"texts": {"a": 1}}': "texts: expected text, not a whole number",
    '{"block": 5}': "block: expected a whole number that is a multiple of 512",
    '{"part": 5}': "part: expected a number below 1",
    '{"part": 0}': "part: expected a number above 0",
    '{"part": 1e999}': "part: number out of range",
    '{"switch": 1}': "switch: expected true or false, not a whole number",
    '{"data": "\u00e9"}': "data: expected text in base64",
    '{"time": {}}': "time: expected a whole number, text or null, not an object",
    '{"inner": {"mode": "c"}}': "inner.mode: 'c' is none of a, b",
    '{"inner": {"of": "c"}}': "inner.of: 'c' is none of x",
    '{"inners": {"any": {"mode": "c"}}}': "inners.mode: 'c' is none of a, b",
    '{"listed": [{"mode": "c"}]}': "listed[0].mode: 'c' is none of a, b",
    '{"inner": {"colour": 1}}': "inner: unknown field colour; there are: mode, of",
    "[]": "body: expected an object, not a list",
    "{": "body: not JSON: the text ends too early",
    "": "body: not JSON: the text ends too early",
    '{"number": tru}': "body: not JSON: invalid character at byte 15",
    '{"number" 1}': "body: not JSON: expected ':' at byte 10",
    "{}x": "body: not JSON: trailing characters at byte 3",
}


def error_of(text, into=WordedBody):
    with pytest.raises(msgspec.MsgspecError) as raised:
        msgspec.json.decode(text, type=into)
    return raised.value


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_names_the_field_the_problem_and_the_expectation(text):
    assert explain(error_of(text), WordedBody, "body") == FAULTS[text]


def test_a_missing_field_is_named():
    assert explain(error_of("{}", Needed), Needed) == "field subject is missing"


def test_an_unknown_field_is_reported_with_the_known_fields():
    fault = fault_of(error_of('{"colour": 1}', Inner), Inner)
    assert fault == ValueFault("", "unknown field colour; there are: mode, of", "colour")
    assert fault_of(error_of('{"colour": 1}', Inner)).reason == "unknown field colour"


def test_an_error_in_a_key_of_an_object_differs_from_an_error_in_the_value():
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert({"texts": {5: "x"}}, WordedBody)
    assert explain(raised.value) == "a name in texts: expected text, not a whole number"


def test_other_errors_are_put_in_words_too():
    with pytest.raises(UnicodeDecodeError) as not_text:
        b"a\xff".decode()
    assert explain(not_text.value) == "not UTF-8: invalid start byte at byte 1"
    with pytest.raises(json.JSONDecodeError) as not_json:
        json.loads("{")
    expected = "not JSON: expecting property name enclosed in double quotes at line 1, column 2"
    assert explain(not_json.value) == expected
    with pytest.raises(RecursionError) as deep:
        msgspec.json.decode("[" * 100_000)
    assert explain(deep.value, whole="body") == "body: nested too deeply"
    assert explain(ValueError("told by ourselves")) == "told by ourselves"
