"""The book of a cluster run finds broken promises to the clients."""

import pytest

from conformance.cluster.book import Book


@pytest.fixture
def book():
    """Return a book: three values are acknowledged, and a group behind them has read two."""
    filled = Book(["t"])
    sent = filled.sending("t", "kafka-0.8.1", [b"a", b"b", b"c"])
    filled.stored("t", sent, [0, 1, None])
    filled.reads("reader", "t", "g", [b"a", b"b"])
    filled.moved("t", filled.moving("reader", "t", "g", 2))
    return filled


WHOLE = [(0, b"a"), (1, b"b"), (2, b"c")]


def judged(book, *, log=WHOLE, position=2):
    return book.judge({"kafka": {"t": log}}, {("g", "t"): position})


def test_a_kept_promise_is_no_fault(book):
    assert judged(book) == []
    assert book.acknowledged == {"kafka-0.8": 3}
    assert list(book.groups) == [("g", "t")]


@pytest.mark.parametrize(
    ("log", "position", "fault"),
    [
        (WHOLE[:2], 2, "lost"),
        ([*WHOLE, (3, b"c")], 2, "twice"),
        ([(0, b"a"), (1, b"x"), (2, b"c")], 2, "lost"),
        ([(0, b"b"), (1, b"a"), (2, b"c")], 2, "order"),
        (WHOLE, 0, "position"),
        (WHOLE, 3, "was never given"),
    ],
)
def test_a_broken_promise_is_found(book, log, position, fault):
    assert any(fault in text for text in judged(book, log=log, position=position))


def test_a_commit_without_an_answer_may_have_happened(book):
    book.reads("reader", "t", "g", [b"c"])
    book.moving("reader", "t", "g", 3)
    assert judged(book, position=2) == judged(book, position=3) == []


def test_the_book_measures_the_time_without_acknowledgements(book):
    book.await_topics(["t"])
    assert book.awaited() == ["t"]
    book.stored("t", book.sending("t", "iggy.1", [b"d"]), [None])
    assert book.awaited() == [] and len(book.take_delays()) == 1
    assert book.take_delays() == []


def test_the_book_watches_progress_of_clients_and_received_topics(book):
    before = book.watch()
    assert before == {"kafka-0.8": 3, "reader": 2}
    assert book.missing("reader", ["t"]) == ["t"], "nothing was acknowledged since"
    book.stored("t", book.sending("t", "iggy.1", [b"d", b"e"]), [None, None])
    assert book.missing("reader", ["t"]) == ["t"]
    book.reads("reader", "t", "g", [b"c"])
    assert book.missing("reader", ["t"]) == ["t"], "the value is older"
    book.reads("reader", "t", "g", [b"d"])
    assert book.missing("reader", ["t"]) == []
    book.goes_on("resizer")
    assert book.progress == {"kafka-0.8": 3, "reader": 4, "iggy": 2, "resizer": 1}
