"""Tokens of logins over HTTP: forged, expired, of another key, and too many."""

import jwt
import pytest

from braidlog.broker.access.rights import Principal
from braidlog.broker.errors import NotAuthenticated
from braidlog.protocols.iggy.http.sessions import ISSUER, HttpSessions
from tests.fake_clock import FakeClock

BOB = Principal("bob")


@pytest.fixture
def clock():
    return FakeClock(1_700_000_000_000_000)


@pytest.fixture
def sessions(clock):
    return HttpSessions(60.0, clock)


def test_a_token_names_its_session(sessions, clock):
    token, session = sessions.begin(3, BOB, None)
    assert sessions.find(token) is session
    assert session.expires_s == clock.now // 1_000_000 + 60
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["sub"], claims["exp"], claims["iss"]) == ("3", session.expires_s, ISSUER)


def test_a_token_expires(sessions, clock):
    token, _ = sessions.begin(3, BOB, None)
    clock.now += 60_000_000
    with pytest.raises(NotAuthenticated):
        sessions.find(token)


def test_a_session_ends(sessions):
    token, session = sessions.begin(3, BOB, None)
    other, _ = sessions.begin(3, BOB, None)
    sessions.end(session)
    with pytest.raises(NotAuthenticated):
        sessions.find(token)
    assert sessions.find(other).user_id == 3


def test_forged_tokens_are_refused(sessions):
    token, session = sessions.begin(3, BOB, None)
    claims = jwt.decode(token, options={"verify_signature": False})
    head, body, signature = token.split(".")
    forged = [
        jwt.encode(claims, b"another key of 32 bytes, at least", "HS256"),
        jwt.encode(claims, None, "none"),
        f"{head}.{body}.",
        f"{head}.{body}.{signature[::-1]}",
        "",
        "x" * 100_000,
    ]
    for text in forged:
        with pytest.raises(NotAuthenticated):
            sessions.find(text)
    assert sessions.find(token) is session


def test_claims_are_checked(sessions):
    token, _ = sessions.begin(3, BOB, None)
    claims = jwt.decode(token, options={"verify_signature": False})
    for change in ({"aud": "other"}, {"iss": "other"}, {"jti": "other"}):
        with pytest.raises(NotAuthenticated):
            sessions.find(jwt.encode(claims | change, sessions._key, "HS256"))
    for name in ("exp", "jti", "sub"):
        fewer = {key: value for key, value in claims.items() if key != name}
        with pytest.raises(NotAuthenticated):
            sessions.find(jwt.encode(fewer, sessions._key, "HS256"))
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        other_algorithm = jwt.encode(claims, sessions._key, "HS512")
    with pytest.raises(NotAuthenticated):
        sessions.find(other_algorithm)


def test_the_oldest_session_gives_way(clock):
    sessions = HttpSessions(60.0, clock, sessions_max=3)
    tokens = [sessions.begin(at, BOB, None)[0] for at in range(4)]
    with pytest.raises(NotAuthenticated):
        sessions.find(tokens[0])
    assert [sessions.find(token).user_id for token in tokens[1:]] == [1, 2, 3]


def test_expired_sessions_are_dropped(sessions, clock):
    sessions.begin(1, BOB, None)
    clock.now += 61_000_000
    sessions.begin(2, BOB, None)
    assert [session.user_id for session in sessions._sessions.values()] == [2]
