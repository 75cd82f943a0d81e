"""Rows of logins: each login mechanism, with right and wrong credentials, at the start of a
connection. A protocol here is a family of mechanisms at a listener.
"""

import base64
import struct
from collections.abc import Iterator, Sequence

import jwt

from conformance.clients.raw import iggy, kafka, pulsar
from conformance.clients.raw.iggy import text8
from conformance.hostile.mutation import HTTP, IGGY, IGGY_V, KAFKA, PULSAR, RAW, FrameLayout
from conformance.hostile.rows import CommandRow, ConnectionKind, Protocol
from conformance.hostile.rows_http import request
from conformance.hostile.rows_iggy_sends import iggy_command
from conformance.hostile.rows_kafka import kafka_request
from conformance.hostile.rows_pulsar import pulsar_command

USER, PASSWORD = "guest", "secret one"  # A user without permissions.
SECRET = b"0123456789abcdef0123456789abcdef"  # Key of signed tokens.
LATE_S = 2**33
SASL_RAW = FrameLayout(">", 4)  # Messages of a mechanism after a handshake of version 0.
VSR_HEAD = 256
HELLO = bytes.fromhex(  # A ClientHello of TLS 1.2 with a single cipher.
    "160301002d010000290303" + "11" * 32 + "000002c02f0100"
)


def tokens() -> dict[str, str]:
    """Return signed tokens: a right token, and tokens that must be refused."""
    claims = {"sub": USER, "exp": LATE_S}
    return {
        "right": jwt.encode(claims, SECRET, "HS256"),
        "expired": jwt.encode({**claims, "exp": 1}, SECRET, "HS256"),
        "future": jwt.encode({**claims, "nbf": LATE_S - 1}, SECRET, "HS256"),
        "none": jwt.encode(claims, None, "none"),
        "other key": jwt.encode(claims, SECRET[::-1], "HS256"),
    }


def _kafka(family: Sequence[tuple[bytes, list[tuple[str, bytes]]]]) -> Iterator[ConnectionKind]:
    """Yield a handshake of both versions, then the mechanism's messages."""
    for mechanism, tokens_sent in family:
        shakes = [kafka_request(17, version, kafka.string(mechanism)) for version in (0, 1)]
        rows = [
            CommandRow(f"{name} v{version}", kafka_request(36, version, kafka.data(data)))
            for name, data in tokens_sent
            for version in (0, 1)
        ]
        yield ConnectionKind(KAFKA, [shakes[1]], ["sasl_handshake"], rows, weight=3)
        raw = [CommandRow(f"{name}, raw", SASL_RAW.with_length(data)) for name, data in tokens_sent]
        yield ConnectionKind(SASL_RAW, [shakes[0]], ["sasl_handshake"], raw)
        yield ConnectionKind(KAFKA, [], [], [CommandRow("handshake", shake) for shake in shakes])


def _bearers() -> list[tuple[str, bytes]]:
    return [
        (f"OAUTHBEARER {kind}", b"n,,\1auth=Bearer " + token.encode() + b"\1\1")
        for kind, token in tokens().items()
    ]


def _plain() -> list[tuple[str, bytes]]:
    return [
        ("PLAIN right", f"\0{USER}\0{PASSWORD}".encode()),
        ("PLAIN wrong", f"\0{USER}\0wrong".encode()),
        ("PLAIN nobody", b"nobody\0nobody\0secret"),
    ]


def _scram() -> list[tuple[str, bytes]]:
    proof = base64.b64encode(bytes(32))
    return [
        ("SCRAM first", f"n,,n={USER},r=fyko+d2lbbFgONRv9qkxdawL".encode()),
        ("SCRAM nobody", b"n,a=nobody,n=no=2Cbody,r=fyko"),
        ("SCRAM last", b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL,p=" + proof),
    ]


def _connect(method: bytes, credentials: Sequence[tuple[str, bytes]]) -> ConnectionKind:
    rows = [
        CommandRow(name, pulsar_command(2, 2, [(1, b"raw"), (3, data), (4, 20), (5, method)]))
        for name, data in credentials
    ]
    answer = pulsar_command(37, 37, [(1, b"raw"), (2, pulsar.encode([(1, method), (2, b"x")]))])
    return ConnectionKind(PULSAR, [], [], [*rows, CommandRow("AUTH_RESPONSE", answer)])


def _iggy_logins(bodies: Sequence[tuple[str, int, bytes]]) -> ConnectionKind:
    rows = [CommandRow(name, iggy_command(code, body)) for name, code, body in bodies]
    return ConnectionKind(IGGY, [], [], rows)


def _register(body: bytes) -> CommandRow:
    """Return the login of the newest dialect."""
    head = bytearray(VSR_HEAD)
    head[60], head[128], head[176] = 5, 1, 1
    whole = struct.pack("<I", 11 << 10) + text8("raw") + text8("0.11.0") + body
    struct.pack_into("<I", head, 48, VSR_HEAD + len(whole))
    return CommandRow("register", bytes(head) + whole)


def _iggy_passwords() -> Iterator[ConnectionKind]:
    for password in (PASSWORD, "wrong"):
        pair = text8(USER) + text8(password)
        version = struct.pack("<I", 7) + b"0.6.202" + bytes(4)
        yield _iggy_logins(
            [("login", iggy.LOGIN, pair), ("login, version", iggy.LOGIN, pair + version)]
        )
        yield ConnectionKind(IGGY_V, [], [], [_register(pair + bytes(4))])


def _iggy_tokens() -> Iterator[ConnectionKind]:
    for token in ("x" * 50, tokens()["right"], tokens()["none"]):
        if len(token) < 256:
            yield _iggy_logins([("login by token", 44, text8(token))])
            yield ConnectionKind(IGGY_V, [], [], [_register(text8(token) + bytes(4))])


def _http(headers: Sequence[tuple[str, str]]) -> ConnectionKind:
    rows = [
        CommandRow(name, request("GET", "/api/v1/topics", None, f"Authorization: {header}"))
        for name, header in headers
    ]
    return ConnectionKind(HTTP, [], [], rows)


def _basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()


def families() -> dict[str, Protocol]:
    """Return every family of mechanisms, by its name; the protocol's name is the listener's."""
    credentials = [(kind, token.encode()) for kind, token in tokens().items()]
    passwords = [("right", PASSWORD), ("wrong", "wrong")]
    pairs = [(kind, f"{USER}:{password}".encode()) for kind, password in passwords]
    bearers = [(kind, f"Bearer {token}") for kind, token in tokens().items()]
    scram = [(name, _scram()) for name in (b"SCRAM-SHA-256", b"SCRAM-SHA-512")]
    return {
        "kafka-plain": Protocol("kafka", list(_kafka([(b"PLAIN", _plain())]))),
        "kafka-scram": Protocol("kafka", list(_kafka(scram))),
        "kafka-token": Protocol("kafka", list(_kafka([(b"OAUTHBEARER", _bearers())]))),
        "pulsar-token": Protocol("pulsar", [_connect(b"token", credentials)]),
        "pulsar-basic": Protocol("pulsar", [_connect(b"basic", pairs)]),
        "iggy-password": Protocol("iggy", list(_iggy_passwords())),
        "iggy-token": Protocol("iggy", list(_iggy_tokens())),
        "http-bearer": Protocol("http", [_http(bearers)]),
        "http-basic": Protocol("http", [_http([(k, _basic(p)) for k, p in passwords])]),
        "tls": Protocol(
            "kafka-tls", [ConnectionKind(RAW, [], [], [CommandRow("ClientHello", HELLO)])]
        ),
    }
