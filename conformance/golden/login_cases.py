"""Dialogues with a broker that demands logins: SASL, and ACLs of users.

A dialogue is a connection: the next request may need the last answer. The broker has the users
ADMIN, a superuser, and CARL, who has no rights; dialogues create ANNA, who has keys for SCRAM.
"""

from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest
from braidlog.protocols.kafka.wire.describe_cluster import DescribeClusterRequest
from braidlog.protocols.kafka.wire.metadata import MetadataRequest
from braidlog.protocols.kafka.wire.sasl_authenticate import SaslAuthenticateRequest
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest
from conformance.clients.raw.scram import HASHES, ScramClient, salted_password

ADMIN, CARL, ANNA = ("admin", "admin-secret"), ("carl", "carl-secret"), ("anna", "anna-secret")
LOGIN_VERSIONS: Final = SaslAuthenticateRequest.VERSIONS
SALT, ITERATIONS = b"golden-salt", 4096
MECHANISM_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SHAKE_VERSION: Final = 1


class LoginStep(NamedTuple):
    """A request of a dialogue, or a bare message of a mechanism; recorded if there is a note."""

    note: str
    version: int
    body: Struct | bytes


LoginDialogue = Generator[LoginStep, Any, None]  # Sent: the answer, None at the connection's end.


def shake(note: str, mechanism: str = "PLAIN", version: int = SHAKE_VERSION) -> LoginStep:
    return LoginStep(note, version, SaslHandshakeRequest(mechanism=mechanism.encode()))


def send(note: str, data: bytes, version: int = LOGIN_VERSIONS[1]) -> LoginStep:
    return LoginStep(note, version, SaslAuthenticateRequest(auth_bytes=data))


def plain(name: str, password: str, acts_for: str = "") -> bytes:
    return f"{acts_for}\0{name}\0{password}".encode()


def cluster(note: str) -> LoginStep:
    """Return a request that shows if the connection is logged in, or at its end."""
    return LoginStep(note, 0, DescribeClusterRequest())


def logged_in(*steps: LoginStep, user: tuple[str, str] = ADMIN) -> LoginDialogue:
    """Log in by PLAIN before these steps."""
    yield shake("")
    yield send("", plain(*user))
    yield from in_order(*steps)


def in_order(*steps: LoginStep) -> LoginDialogue:
    """Yield steps that need no answer."""
    for step in steps:
        _ = yield step


def _key_of_anna(mechanism: str, number: int) -> LoginStep:
    key = ScramCredentialUpsertion(
        name=ANNA[0].encode(),
        mechanism=number,
        iterations=ITERATIONS,
        salt=SALT,
        salted_password=salted_password(HASHES[mechanism], ANNA[1], SALT, ITERATIONS),
    )
    return LoginStep("key for a login", 0, AlterUserScramCredentialsRequest(upsertions=[key]))


def _plain_logins(version: int) -> Iterator[LoginDialogue]:
    def right() -> LoginDialogue:
        yield shake("before a right password")
        yield send("a right password", plain(*ADMIN), version)
        yield cluster("after a right password")
        yield shake("after a login")
        yield send("a password after a login", plain(*ADMIN), version)

    yield right()
    for note, data in (
        ("a wrong password", plain(ADMIN[0], "wrong")),
        ("an unknown user", plain("nobody", "wrong")),
        ("a user of SCRAM alone", plain(*ANNA)),
        ("acting for oneself", plain(*ADMIN, acts_for=ADMIN[0])),
        ("acting for another user", plain(*ADMIN, acts_for=CARL[0])),
        ("no user", plain("", "secret")),
        ("an empty password", plain(ADMIN[0], "")),
        ("a message without zeros", b"admin"),
        ("a message with a surplus zero", plain(*ADMIN) + b"\0"),
        ("an empty message", b""),
        ("a message that is no text", b"\0\xff\0x"),
    ):
        yield _tried(note, data, version)


def _tried(note: str, data: bytes, version: int) -> LoginDialogue:
    yield shake(f"before {note}")
    yield send(note, data, version)
    yield cluster(f"after {note}")


def _scram(note: str, mechanism: str, user: tuple[str, str], version: int) -> LoginDialogue:
    client = ScramClient(mechanism, *user)
    note = f"{note} by {mechanism}"
    yield shake(f"before {note}", mechanism)
    challenge = yield send(f"first message, {note}", client.first(), version)
    is_challenge = challenge is not None and not challenge.error_code
    last = client.last(bytes(challenge.auth_bytes)) if is_challenge else b""
    yield send(f"last message, {note}", last, version)
    yield cluster(f"after {note}")


def _bad_scram(note: str, first: bytes, last: bytes | None) -> LoginDialogue:
    yield shake(f"before {note}", "SCRAM-SHA-256")
    yield send(f"first message, {note}", first)
    if last is not None:
        yield send(f"last message, {note}", last)
    yield cluster(f"after {note}")


def _scram_logins(version: int) -> Iterator[LoginDialogue]:
    for mechanism in HASHES:
        yield _scram("a right proof", mechanism, ANNA, version)
        yield _scram("a wrong proof", mechanism, (ANNA[0], "wrong"), version)
    yield _scram("a proof of a user without keys", "SCRAM-SHA-256", ("nobody", "wrong"), version)
    right = b"n,,n=anna,r=abc"
    for note, first, last in (
        ("a first message without a nonce", b"n,,n=anna", None),
        ("a binding to a channel", b"p=tls-unique,,n=anna,r=abc", None),
        ("a request to act for another user", b"n,a=carl,n=anna,r=abc", None),
        ("an extension that must be known", b"n,,m=x,n=anna,r=abc", None),
        ("an empty first message", b"", None),
        ("a last message with another nonce", right, b"c=biws,r=abc,p=AAAA"),
        ("a last message that is no text", right, b"\xff"),
    ):
        yield _bad_scram(note, first, last)


def _orders() -> Iterator[LoginDialogue]:
    """Yield requests in an order that is not allowed, and the login of the first release."""

    yield in_order(LoginStep("metadata before a login", 4, MetadataRequest(topics=[])))
    versions = ApiVersionsRequest(client_software_name=b"golden", client_software_version=b"1")
    yield in_order(LoginStep("versions before a login", 3, versions), shake("after the versions"))
    for version in range(LOGIN_VERSIONS[0], LOGIN_VERSIONS[1] + 1):
        yield in_order(send("a password without a handshake", plain(*ADMIN), version))
    for version in (0, 1):
        strange = shake("an unknown mechanism", "GSSAPI", version)
        yield in_order(strange, shake("after an unknown mechanism"))
        yield in_order(shake("without a mechanism", "", version), cluster("after no mechanism"))
        yield in_order(shake("a mechanism in small letters", "plain", version))
    twice = shake("a second handshake")
    yield in_order(shake("a first handshake"), twice, send("two handshakes", plain(*ADMIN)))
    waiting = shake("a handshake alone")
    yield in_order(waiting, LoginStep("metadata within a login", 4, MetadataRequest(topics=[])))
    yield in_order(shake("a handshake"), LoginStep("versions within a login", 3, versions))
    for note, user in (("right", ADMIN), ("wrong", (ADMIN[0], "wrong"))):
        bare = LoginStep("", 0, plain(*user))
        yield in_order(
            shake(f"before a {note} bare message", version=0),
            bare,
            cluster(f"after a {note} bare message"),
        )
    wrapped = send("a request where a bare message is due", plain(*ADMIN))
    yield in_order(shake("before a request", version=0), wrapped)


def login_dialogues() -> Iterator[LoginDialogue]:
    """Yield the dialogues about logins, in order."""
    yield logged_in(*(_key_of_anna(*mechanism) for mechanism in MECHANISM_NUMBERS.items()))
    for version in range(LOGIN_VERSIONS[0], LOGIN_VERSIONS[1] + 1):
        yield from _plain_logins(version)
        yield from _scram_logins(version)
    yield from _orders()
