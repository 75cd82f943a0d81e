"""Conditions on messages."""

import pytest

from braidlog.protocols.http.console.expression import (
    EXPRESSION_CHARACTERS_MAX,
    BadExpression,
    parse_expression,
)

MESSAGE = {
    "key": "c1",
    "value": {"amount": 12, "items": [{"name": "tea"}], "note": None, "0": "zero"},
    "headers": {"src": "web", "a b": "x"},
    "offset": 7,
    "partition": 0,
    "time": 1000,
}


@pytest.mark.parametrize(
    "text",
    [
        'key == "c1"',
        "value.amount > 10 and value.amount <= 12",
        'value.items[0].name startswith "te"',
        "value.note == null",
        "value.none == null",
        "value.items[9].name == null",
        'headers.src contains "we" or offset == 0',
        "headers[\"a b\"] == 'x'",
        "not (offset < 7 or partition != 0)",
        "value.0 == 'zero'",
        "value",
        "value contains 'amount'",
        "not value.amount > 'text'",
        "not value contains value",
        "offset > -1 and offset < 7.5",
        "true and not false",
    ],
)
def test_a_true_condition(text):
    assert parse_expression(text)(MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "key == 'c2'",
        "value.amount < 'a'",
        "key > 1",
        "key and null",
        "not not value.note",
        "'' or 0",
    ],
)
def test_a_false_condition(text):
    assert not parse_expression(text)(MESSAGE)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a field"),
        ("key ==", "expected a field"),
        ("secret == 1", "there is no field 'secret'"),
        ("key == 'a", "cannot read"),
        ("(key", "closing parenthesis"),
        ("key key", "expected the end"),
        ("__import__('os')", "no field"),
        ("(" * 21 + "key" + ")" * 21, "nests at most"),
        ("not " * 21 + "key", "nests at most"),
        ("k" * (EXPRESSION_CHARACTERS_MAX + 1), "at most"),
    ],
)
def test_a_mistake_is_named(text, problem):
    with pytest.raises(BadExpression, match=problem):
        parse_expression(text)
