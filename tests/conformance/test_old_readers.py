"""The comparison of programs over ZooKeeper. `python -m conformance.old` runs the programs."""

from conformance.old import readers
from conformance.old.zookeeper_programs import BY_HAND, READERS, SHARING, TREES


def test_every_program_has_a_recorded_output_and_no_other() -> None:
    programs = (*READERS, *BY_HAND, *TREES)
    assert {readers.recorded(program) for program in programs} == set(readers.VECTORS.glob("*.txt"))
    for program in (*READERS, *BY_HAND):
        steps = readers.recorded_steps(readers.recorded(program).read_text())
        assert len(steps["read from the beginning"].splitlines()) == readers.RECORDS
        assert len(steps["go on at the position"].splitlines()) == readers.MORE
        assert ("two members" in steps) == (program.name in SHARING)
    for program in TREES:
        text = readers.recorded(program).read_text()
        assert "delete" in text
        assert "exit code" not in text


def test_a_difference_is_shown_and_none_is_ok() -> None:
    program = READERS[0]
    steps = readers.recorded_steps(readers.recorded(program).read_text())
    assert {outcome for _, outcome in readers.compared(program, iter(steps.items()))} == {"ok"}
    changed = iter([("two members", "1 own 3\n1 own 2")])
    ((_, outcome),) = readers.compared(program, changed)
    assert outcome.startswith("FAILED")
    assert "+1 own 2" in outcome


def test_ids_and_addresses_are_left_out() -> None:
    line = '{"host":"127.0.0.1","port":9092,"id":"0a1b2c3d-0000-4000-8000-0123456789ab"}'
    assert readers.masked(line) == '{"host":HOST,"port":PORT,"id":"ID"}'
