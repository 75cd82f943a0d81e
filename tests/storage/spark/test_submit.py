"""The export as a Spark application: its arguments; what it does is tested with the job."""

import pytest

from storage.spark.submit import EXIT_FAILED, EXIT_USAGE, main


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--log", "x", "--to", "y"], EXIT_USAGE, "name topics"),
        (["a", "--pattern", "b", "--log", "x", "--to", "y"], EXIT_USAGE, "name topics"),
        (["a/b", "--log", "x", "--to", "y"], EXIT_USAGE, "neither a topic"),
        (["a", "--log", "/nowhere", "--to", "y"], EXIT_FAILED, "/nowhere"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_code(arguments, code, text, capsys):
    assert main(arguments) == code
    assert text in capsys.readouterr().err
