"""Checks of the pipelines that need no Java: doubled, lost and late lines are found."""

import pytest

from conformance.today import pipelines
from conformance.today.pipelines import PipelineFailed, Pipelines
from conformance.today.programs import SOURCES


@pytest.mark.parametrize("copied", [["a", "a", "b"], ["b", "a"], ["a", "c"]])
def test_doubled_moved_and_wrong_lines_are_found(tmp_path, copied):
    path = tmp_path / "copied"
    path.write_text("".join(f"{line}\n" for line in copied))
    with pytest.raises(PipelineFailed, match="lost, doubled"):
        pipelines.await_lines(path, ["a", "b"])


def test_equal_lines_pass(tmp_path):
    path = tmp_path / "copied"
    path.write_text("a\nb\n")
    pipelines.await_lines(path, ["a", "b"])


def test_a_wait_has_an_end():
    with pytest.raises(PipelineFailed, match="the text: not within 0 s"):
        pipelines.wait_for("the text", lambda: False, limit_s=0.0)


def test_a_program_that_ends_early_is_a_failure_with_its_log(tmp_path):
    means = Pipelines(["sh", "-c", "echo broken; exit 1", "sh"], "B:1", tmp_path)
    with pytest.raises(PipelineFailed, match="broken"), means.running("a.Program"):
        pipelines.wait_for("the text", lambda: "broken" in means.tail("a.Program"))


@pytest.mark.parametrize("sent", [7, 150])
def test_counts_are_those_of_the_numbers_sent(sent):
    right = [(f"k{number % 7}", str(number // 7 + 1)) for number in range(sent)]
    assert pipelines.is_counted(right, sent)
    assert not pipelines.is_counted(right, sent + 1)
    assert not pipelines.is_counted(right[:-1], sent)


def test_the_libraries_have_the_version_of_the_program():
    assert "${kafka.version}" in (SOURCES / "streams" / "pom.xml").read_text()
