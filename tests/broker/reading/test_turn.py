"""When a read lets others have their turn."""

from braidlog.broker.reading.turn import TURN_US_MAX, Turn


def turns(turn, *work_us):
    """How often others have their turn before these pieces of work."""
    count = 0
    for piece_us in work_us:
        for waiting in turn.give_way(piece_us):
            waiting.close()
            count += 1
    return count


def test_small_pieces_of_work_share_a_turn():
    assert turns(Turn(), *[TURN_US_MAX // 10] * 10) == 0
    assert turns(Turn(), *[TURN_US_MAX // 10] * 31) == 3


def test_a_long_piece_has_a_turn_of_its_own():
    assert turns(Turn(), 10 * TURN_US_MAX) == 0
    assert turns(Turn(), 1, 10 * TURN_US_MAX, 1) == 2


def test_work_that_was_done_counts():
    turn = Turn(TURN_US_MAX)
    assert turns(turn, 1, 1) == 1
    turn.add(TURN_US_MAX)
    assert turns(turn, 1, 1) == 1
