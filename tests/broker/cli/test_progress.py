"""Progress of long work is a line on a terminal, and nothing elsewhere."""

import io
import sys

from braidlog.broker.cli.progress import ERASE, ProgressBar, progress


class FakeTerminal(io.StringIO):
    """A terminal that keeps what it was sent."""

    def isatty(self):
        return True


def test_the_line_has_share_rate_and_time_left():
    now = [0.0]
    terminal = FakeTerminal()
    shown = ProgressBar("verify", "bytes", terminal, lambda: now[0])
    now[0] = 2.0
    shown.advance(1 << 20, 4 << 20)
    expected = "verify   25 %  1.0 MiB of 4.0 MiB  512.0 KiB/s  0:06 left"
    assert terminal.getvalue() == ERASE + expected.replace("verify ", "verify ", 1)


def test_an_unknown_amount_shows_the_rate_alone():
    now = [0.0]
    terminal = FakeTerminal()
    shown = ProgressBar("import", "records", terminal, lambda: now[0])
    now[0] = 10.0
    shown.advance(12_000, 0)
    assert terminal.getvalue() == f"{ERASE}import  12,000 records  1,200 records/s"


def test_the_line_is_not_drawn_more_often_than_eyes_can_follow():
    now = [0.0]
    terminal = FakeTerminal()
    shown = ProgressBar("x", "records", terminal, lambda: now[0])
    for number in range(100):
        now[0] = number / 1000
        shown.advance(number, 100)
    assert terminal.getvalue().count(ERASE) == 1


def test_a_terminal_is_clean_afterwards(monkeypatch):
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("x", "records") as advance:
        advance(1, 10_000_000)
    assert terminal.getvalue().endswith(ERASE)


def test_nothing_is_printed_without_a_terminal(monkeypatch):
    elsewhere = io.StringIO()
    monkeypatch.setattr(sys, "stderr", elsewhere)
    with progress("x") as advance:
        advance(1, 2)
    assert elsewhere.getvalue() == ""
