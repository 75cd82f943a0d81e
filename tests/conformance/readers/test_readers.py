"""A short run of readers over sockets, and what the run calls a fault."""

import random

import pytest

from conformance.readers import __main__ as readers
from conformance.readers.__main__ import Written, body_of, fault, run


@pytest.mark.slow
@pytest.mark.clients
def test_each_reader_sees_what_any_writer_wrote():
    records, faults = run(topics=3, seed=5, body_max=300_000)
    assert faults == []
    assert records > 100


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ([(0, b"a"), (1, b"b")], None),
        ([(0, b"a")], "1 of 2 records"),
        ([(0, b"a"), (0, b"a"), (1, b"b")], "offset 0 instead of 1"),
        ([(1, b"b"), (0, b"a")], "offset 1 instead of 0"),
        ([(0, b"a"), (1, b"a")], "another value"),
    ],
)
def test_a_record_that_is_missing_repeated_or_changed_is_a_fault(monkeypatch, seen, text):
    monkeypatch.setitem(readers.READERS, "fake", lambda *_: iter(seen))
    problem = fault(None, Written("t", [b"a", b"b"]), "fake", 1)
    assert problem is None if text is None else text in problem


def test_a_body_keeps_its_limits_and_has_records_of_all_sizes():
    bodies = [body_of(random.Random(seed), 0, 1000, 20_000) for seed in range(100)]
    sizes = [len(value) for values in bodies for value in values]
    assert max(sum(map(len, values)) for values in bodies) < 20_000
    assert min(sizes) == 1 and 900 < max(sizes) <= 1000
