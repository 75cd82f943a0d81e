"""Sessions end after a time without use, and their number is limited."""

from braidlog.protocols.http.console.sessions import (
    SESSION_IDLE_S,
    SESSIONS_MAX,
    Sessions,
    new_cookie,
    read_cookie,
)


def test_a_session_ends_after_the_idle_time():
    now = 0.0
    sessions = Sessions(lambda: now)
    cookie = sessions.sign_in("Bearer x", "a token")
    now += SESSION_IDLE_S
    assert sessions.find(cookie) is not None
    now += SESSION_IDLE_S + 1
    assert sessions.find(cookie) is None


def test_the_least_recently_used_session_makes_room():
    sessions = Sessions(lambda: 0.0)
    first, second = (sessions.sign_in("Bearer x", "a token") for _ in range(2))
    sessions.find(first)
    for _ in range(SESSIONS_MAX - 1):
        sessions.sign_in("Bearer x", "a token")
    assert sessions.find(first) is not None and sessions.find(second) is None


def test_a_form_token_belongs_to_a_cookie():
    sessions = Sessions(lambda: 0.0)
    cookie, other = new_cookie(), new_cookie()
    assert sessions.is_form_token(cookie, sessions.form_token(cookie))
    assert not sessions.is_form_token(cookie, sessions.form_token(other))
    assert read_cookie(cookie) == cookie
    assert read_cookie("x") is None and read_cookie(None) is None
