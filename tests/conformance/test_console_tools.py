"""The comparison of Kafka's command line tools: its tables, and the parts that need no Java."""

from pathlib import Path

import pytest

from conformance.today import console_tools
from conformance.today.console_tools import RECORDED, TOOLS, ToolAnswer


def test_each_command_has_a_tool_and_a_recorded_answer():
    commands = console_tools.commands()
    recorded = console_tools.read_answers(RECORDED)
    assert {command.split(" ")[0] for command in commands} == set(TOOLS)
    counts = {command: len(answers) for command, answers in recorded.items()}
    assert counts == {command: commands.count(command) for command in commands}


def test_each_difference_is_of_a_command_and_has_a_reason():
    known = console_tools.known_differences()
    assert known.keys() <= set(console_tools.commands())
    assert all(known.values())


def test_no_recorded_answer_ran_into_the_limit():
    recorded = console_tools.read_answers(RECORDED)
    statuses = {lines[0] for answers in recorded.values() for lines in answers}
    assert statuses == {"0", "1"}


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        ("kafka-topics --list", ["--list", "--bootstrap-server", "B:1"]),
        ("kafka-features describe", ["--bootstrap-server", "B:1", "describe"]),
        (
            "kafka-cluster unregister --id 7",
            ["unregister", "--bootstrap-server", "B:1", "--id", "7"],
        ),
    ],
)
def test_the_address_stands_where_the_tool_reads_it(command, rest):
    line = console_tools.line_for(command, "B:1", Path("/f"))
    assert line.split("\t")[2:] == rest


def test_input_and_files_are_filled_in():
    line = console_tools.line_for(r"kafka-console-producer --topic t < a\nb\n", "B:1", Path("/f"))
    assert line.split("\t")[1] == r"a\nb\n"
    line = console_tools.line_for(
        "kafka-delete-records --offset-json-file {folder}/x", "B", Path("/f")
    )
    assert "/f/x" in line


def test_parts_that_differ_from_run_to_run_are_left_out():
    text = "1\n127.0.0.1:9092 at [2026-11-28 17:00:00,1] in /tmp/a/b\n\n@err\nx  \n\tat java.Main\n"
    assert console_tools.masked(text) == ("1", "ADDRESS at [TIME] in FOLDER", "x")
    assert console_tools.masked("0\ntopic public/default/t\n") == ("0", "topic public/default/t")


def test_differences_are_found_in_the_order_of_the_commands():
    recorded = {"a": [("0", "x"), ("0", "y")], "b": [("0",)]}
    answered = [ToolAnswer("a", ("0", "x")), ToolAnswer("b", ("1",)), ToolAnswer("a", ("0", "z"))]
    differences = list(console_tools.compare(recorded, iter(answered)))
    assert differences == [("b", "- 0\n+ 1"), ("a", "- y\n+ z")]


def test_a_new_difference_and_a_gone_one_end_with_1(capsys):
    recorded = console_tools.read_answers(RECORDED)
    seen = {}
    answered = []
    for command in console_tools.commands():
        answers = recorded[command]
        answered.append(ToolAnswer(command, answers[seen.setdefault(command, 0)]))
        seen[command] += 1
    assert console_tools.report(iter(answered)) == 1  # Every known difference is gone.
    known = console_tools.known_differences()
    changed = [
        ToolAnswer(answer.command, ("2",)) if answer.command in known else answer
        for answer in answered
    ]
    assert console_tools.report(iter(changed)) == 0
    changed[0] = ToolAnswer(changed[0].command, ("2",))
    assert console_tools.report(iter(changed)) == 1
    assert changed[0].command in capsys.readouterr().out
