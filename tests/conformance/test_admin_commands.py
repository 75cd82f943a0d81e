"""The comparison of pulsar-admin's answers with those recorded from Apache."""

import json

import pytest

from conformance.programs import java_admin_calls
from conformance.programs.admin_commands import (
    ANSWERS,
    ENDING,
    CommandLine,
    outcome,
    read_lines,
    recorded,
    table,
)


def test_each_line_has_a_recorded_answer():
    lines = [line.text for line in read_lines() if line.text != ENDING]
    assert [*json.loads(ANSWERS.read_text())] == [f"{i} {text}" for i, text in enumerate(lines)]


def test_each_call_of_java_has_a_recorded_answer():
    lines = [line.text for line in read_lines(java_admin_calls.LINES)]
    answers = json.loads(java_admin_calls.ANSWERS.read_text())
    assert [*answers] == [f"{i} {text}" for i, text in enumerate(lines)]


@pytest.mark.parametrize(
    ("answer", "expected"), [("501 not served", "501"), ("404 gone", "ends with 404 gone, not 501")]
)
def test_a_refused_call_of_java_is_501(answer, expected):
    line = CommandLine("Topics.trimTopic(String) x", "501")
    refusal = {"ok": False, "text": answer}
    assert java_admin_calls.fault(line, refusal, {"ok": True}) == expected


@pytest.mark.parametrize(
    ("flag", "text", "is_ok", "expected"),
    [
        ("", '{"b": 1, "a": 2}', True, "same"),
        ("", '{"a": 2, "b": 2}', True, "answers"),
        ("", '{"a": 2, "b": 1}', False, "ends with False"),
        ("keys", '{"a": 3, "b": 4, "c": 5}', True, "same"),
        ("keys", '{"a": 3}', True, "lacks .b"),
        ("status", "anything", True, "same"),
        ("status", "anything", False, "ends with False"),
        ("501", "not served here", False, "501"),
        ("501", "done", True, "served"),
        ("differs: a reason", "anything", False, "differs"),
    ],
)
def test_an_answer_is_compared_by_its_flag(flag, text, is_ok, expected):
    line = CommandLine("topics stats x", flag)
    of_apache = recorded(line, {"ok": True, "text": '{"a": 2, "b": 1}\n'})
    assert outcome(line, {"ok": is_ok, "text": text}, of_apache).startswith(expected)


def test_a_command_is_refused_if_all_its_lines_are():
    lines = [CommandLine(f"topics {name}") for name in ("a 1", "a 2", "b 1", "c 1")]
    rows = list(table(lines, ["same", "501", "501", "differs"]))
    assert "| topics | 3 | 2 | 1 | 1 |" in rows and rows[-1] == "| all | 3 | 2 | 1 | 1 |"
