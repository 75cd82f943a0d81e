"""Turns for other tasks during a read."""

from braidlog.broker.reading.turn import TURN_US_MAX, Turn


def turns(turn, *work_us):
    """Return the number of turns for other tasks before these pieces of work."""
    count = 0
    for piece_us in work_us:
        for waiting in turn.give_way(piece_us):
            waiting.close()
            count += 1
    return count


def test_small_pieces_of_work_share_a_turn():
    assert turns(Turn(), *[TURN_US_MAX // 10] * 10) == 0
    assert turns(Turn(), *[TURN_US_MAX // 10] * 31) == 3


def test_a_long_piece_has_its_own_turn():
    assert turns(Turn(), 10 * TURN_US_MAX) == 0
    assert turns(Turn(), 1, 10 * TURN_US_MAX, 1) == 2


def test_earlier_work_counts():
    turn = Turn(TURN_US_MAX)
    assert turns(turn, 1, 1) == 1
    turn.add(TURN_US_MAX)
    assert turns(turn, 1, 1) == 1
