"""A small language for conditions on messages, such as `value.amount > 10 and key contains "a"`.

Operators: `==`, `!=`, `<`, `<=`, `>`, `>=`, `contains`, `startswith`, `and`, `or`, `not`, and
parentheses. Operands: texts in quotes, numbers, `true`, `false`, `null`, and fields: `key`,
`value.a.b[0]`, `headers.name` or `headers["a name"]`, `offset`, `partition`, `time`. A field that a
message does not have is null. Knows no message: fields come from a mapping. No pattern matching:
a pattern could take a long time.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

EXPRESSION_CHARACTERS_MAX = 1000
EXPRESSION_DEPTH_MAX = 20  # Of parentheses and `not`.
TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>-?\d+(?:\.\d+)?)
    |(?P<sign>==|!=|<=|>=|<|>|\(|\))
    |(?P<word>[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\]|\["(?:[^"\\]|\\.)*"\])*)
    )""",
    re.VERBOSE,
)
STEP = re.compile(r'\.?([\w-]+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
CONSTANTS: Final = {"true": True, "false": False, "null": None}
FIELDS: Final = ("key", "value", "headers", "offset", "partition", "time")

Fields = Mapping[str, Any]
Condition = Callable[[Fields], Any]


class BadExpression(ValueError):
    """The text is not an expression."""


def parse_expression(text: str) -> Condition:
    """Return a function of a message's fields that returns the expression's value. Raises
    BadExpression.
    """
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise BadExpression(f"an expression has at most {EXPRESSION_CHARACTERS_MAX} characters")
    parser = _Parser(text)
    condition = parser.any_of()
    if parser.token[1]:
        raise BadExpression(f"expected the end before {parser.token[1]!r}")
    return condition


class _Parser:
    """Reads tokens from left to right; each method reads what its name says."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._depth = 0
        self.token = ("", "")  # The kind and text of the next token; ("", "") at the end.
        self._advance()

    def any_of(self) -> Condition:
        left = self._all_of()
        while self._take("word", "or"):
            left = _either(left, self._all_of())
        return left

    def _all_of(self) -> Condition:
        left = self._negation()
        while self._take("word", "and"):
            left = _both(left, self._negation())
        return left

    def _negation(self) -> Condition:
        if not self._take("word", "not"):
            return self._comparison()
        self._deeper()
        inner = self._negation()
        self._depth -= 1
        return lambda fields: not inner(fields)

    def _comparison(self) -> Condition:
        if self._take("sign", "("):
            self._deeper()
            inner = self.any_of()
            self._depth -= 1
            if not self._take("sign", ")"):
                raise BadExpression("a closing parenthesis is missing")
            return inner
        left = self._operand()
        _, sign = self.token
        compare = COMPARISONS.get(sign)
        if compare is None:
            return left
        self._advance()
        right = self._operand()
        return lambda fields: compare(left(fields), right(fields))

    def _operand(self) -> Condition:
        kind, text = self.token
        self._advance()
        if kind == "text":
            plain = re.sub(r"\\(.)", r"\1", text[1:-1])
            return lambda _: plain
        if kind == "number":
            number = float(text) if "." in text else int(text)
            return lambda _: number
        if kind != "word" or text in ("and", "or", "not"):
            raise BadExpression(f"expected a field or value, not {text!r}")
        if text in CONSTANTS:
            constant = CONSTANTS[text]
            return lambda _: constant
        return _field(text)

    def _advance(self) -> None:
        match = TOKEN.match(self._text, self._pos)
        if match is None:
            rest = self._text[self._pos :].strip()
            if rest:
                raise BadExpression(f"cannot read {rest[:20]!r}")
            self.token = ("", "")
            return
        self._pos = match.end()
        kind = match.lastgroup or ""
        self.token = (kind, match[kind])

    def _take(self, kind: str, text: str) -> bool:
        """Advance past the next token if it is this one."""
        if self.token != (kind, text):
            return False
        self._advance()
        return True

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > EXPRESSION_DEPTH_MAX:
            raise BadExpression(f"an expression nests at most {EXPRESSION_DEPTH_MAX} deep")


def _field(text: str) -> Condition:
    """Return a function that reads a field, such as `value.items[0]`. Raises BadExpression."""
    steps: list[str | int] = []
    for match in STEP.finditer(text):
        name, index, quoted = match.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
    if steps[0] not in FIELDS:
        raise BadExpression(f"there is no field {steps[0]!r}, only {', '.join(FIELDS)}")

    def read(fields: Fields) -> Any:  # noqa: ANN401  # Any JSON value.
        value: Any = fields
        for step in steps:
            if isinstance(value, Mapping):
                value = value.get(step if isinstance(step, str) else str(step))
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                return None
        return value

    return read


def _either(left: Condition, right: Condition) -> Condition:
    return lambda fields: left(fields) or right(fields)


def _both(left: Condition, right: Condition) -> Condition:
    return lambda fields: left(fields) and right(fields)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a comparison that is false for values without an order, such as a text and a
    number.
    """

    def ordered(left: object, right: object) -> bool:
        try:
            return compare(left, right)
        except TypeError:
            return False

    return ordered


def _contains(left: object, right: object) -> bool:
    if isinstance(left, str):
        return isinstance(right, str) and right in left
    if isinstance(right, (list, dict)):
        return False
    return isinstance(left, (list, dict)) and right in left


def _starts(left: object, right: object) -> bool:
    return isinstance(left, str) and isinstance(right, str) and left.startswith(right)


COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "contains": _contains,
    "startswith": _starts,
}
