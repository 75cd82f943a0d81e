"""Tracebacks: plain text, without values, of bounded size for any error."""

import pytest

from braidlog.broker.config.tracebacks import (
    CHAIN_MAX,
    ERRORS_MAX,
    GROUP_MAX,
    INNER_FRAMES_MAX,
    MESSAGE_CHARS_MAX,
    OUTER_FRAMES_MAX,
    traceback_text,
)

CHARS_MAX = 200_000  # The largest traceback; a usual traceback has 1,000.
FRAMES_MAX = OUTER_FRAMES_MAX + INNER_FRAMES_MAX


def caught(act, *arguments):
    try:
        act(*arguments)
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def deep(frames, secret="of a client"):
    if frames:
        deep(frames - 1)
    raise ValueError("at the bottom")


def chain_of(length, *, is_cause):
    """Return an error at the end of a chain of that length."""
    before = None
    for number in range(length):
        error = caught(deep, 2)
        error.args = (f"number {number}",)
        if is_cause:
            error.__cause__ = before
        else:
            error.__context__ = before
        before = error
    return before


def frames_of(text):
    return text.count("  File ")


def test_a_short_traceback_equals_pythons():
    text = traceback_text(caught(deep, 2))
    assert text.startswith("Traceback (most recent call last):\n  File ")
    assert text.endswith("ValueError: at the bottom")
    assert 'raise ValueError("at the bottom")' in text
    assert frames_of(text) == 4 and "left out" not in text


def test_a_deep_traceback_keeps_both_ends_and_counts_the_rest():
    text = traceback_text(caught(deep, 900))
    assert frames_of(text) == FRAMES_MAX
    assert f"({902 - FRAMES_MAX} frames are left out)" in text
    assert "in caught" in text.splitlines()[1]
    assert text.splitlines()[-3].endswith("in deep")


def test_values_of_variables_are_left_out():
    assert "of a client" not in traceback_text(caught(deep, 2))


@pytest.mark.parametrize("is_cause", [True, False])
def test_a_long_chain_shows_the_last_errors(is_cause):
    text = traceback_text(chain_of(1000, is_cause=is_cause))
    assert text.count("ValueError: number") == CHAIN_MAX
    assert text.endswith("ValueError: number 999")
    assert text.startswith("(earlier exceptions are left out)")
    assert ("direct cause" in text) is is_cause
    assert "left out" not in traceback_text(chain_of(CHAIN_MAX, is_cause=is_cause))


def test_a_suppressed_context_is_not_shown():
    error = chain_of(2, is_cause=False)
    error.__suppress_context__ = True
    assert "number 0" not in traceback_text(error)


def test_an_error_that_caused_itself_is_shown_once():
    error = caught(deep, 1)
    other = caught(deep, 1)
    error.__context__, other.__context__ = other, error
    assert traceback_text(error).count("ValueError") == 2 + 2  # Names, and lines that raise.


def test_a_group_shows_its_first_errors():
    text = traceback_text(ExceptionGroup("many", [caught(deep, 1) for _ in range(1000)]))
    assert text.count("ValueError: at the bottom") == GROUP_MAX
    assert f"({1000 - GROUP_MAX} of 1000 are left out)" in text


def test_nested_groups_are_bounded():
    error = caught(deep, 500)
    for _ in range(100):
        error = ExceptionGroup("group", [error, chain_of(20, is_cause=True), caught(deep, 500)])
    text = traceback_text(error)
    assert text.count("ValueError:") <= ERRORS_MAX
    assert frames_of(text) <= ERRORS_MAX * FRAMES_MAX
    assert len(text) < CHARS_MAX


def test_a_long_message_is_cut():
    text = traceback_text(ValueError("x" * 10_000_000))
    assert len(text) < MESSAGE_CHARS_MAX + 100 and "(10000000 characters)" in text


class Unprintable(Exception):
    def __str__(self):
        raise ValueError


def test_an_error_without_text_is_shown_by_its_name():
    assert traceback_text(Unprintable()).startswith(f"{__name__}.Unprintable: <")
