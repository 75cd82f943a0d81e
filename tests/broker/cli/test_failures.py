"""Errors of storage and settings become a line and an exit code."""

import pytest

from braidlog.broker.cli.failures import EXIT_NOT_FOUND, EXIT_USAGE, AdminError, fail, failing

KINDS = {EXIT_USAGE: ValueError, EXIT_NOT_FOUND: (KeyError, OSError)}


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(UnicodeError("bad name"), EXIT_USAGE), (FileNotFoundError("no folder"), EXIT_NOT_FOUND)],
)
def test_an_error_has_the_exit_code_of_its_type(error, exit_code):
    with pytest.raises(AdminError, match=str(error)) as raised, failing(KINDS):
        raise error
    assert raised.value.exit_code == exit_code


def test_an_error_of_another_type_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError), failing(KINDS):
        raise ZeroDivisionError


def test_a_failure_is_a_single_line(capsys):
    assert fail("first\n  second", EXIT_USAGE) == EXIT_USAGE
    assert capsys.readouterr().err == "braidlog: first second\n"
