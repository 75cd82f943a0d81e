"""Rows of ZooKeeper: every operation on stored nodes and on nodes that show the broker, recorded
frames of Kafka 0.8 and kazoo, first frames, and four-letter words.
"""

import struct
from collections.abc import Iterator

from conformance.clients.raw import zookeeper as zk
from conformance.hostile.mutation import RAW, ZOOKEEPER
from conformance.hostile.rows import TOPIC, CommandRow, ConnectionKind, Protocol, recorded

TIMEOUT_MS = 1  # The shortest that the broker gives: sessions of the attack end soon.
CONNECT = zk.connect_frame(TIMEOUT_MS)
WORDS = ("ruok", "stat", "srvr", "mntr", "conf", "cons", "dump", "wchs", "isro", "envi")
OFFSET = f"/consumers/hostile/offsets/{TOPIC}/0"
CONSUMER = "/consumers/hostile/ids/c-1"
ASSIGNMENT = b'{"version":1,"partitions":{"0":[1],"1":[1]}}'
SETTINGS = b'{"version":1,"config":{"retention.ms":"5000","cleanup.policy":"compact"}}'
NODES = ("/", "/hostile", "/zookeeper/quota", OFFSET, CONSUMER, "/brokers/ids/1", "/consumers")
ACLS = struct.pack(">ii", 2, 31) + zk.text("digest") + zk.text("a:b") + zk.OPEN[4:]


def _operations() -> Iterator[tuple[str, int, bytes]]:
    """Yield names, operations and fields."""
    for path in (*NODES, f"/brokers/topics/{TOPIC}", f"/config/topics/{TOPIC}"):
        yield "exists", zk.EXISTS, zk.read_body(path, watch=True)
        yield "get_data", zk.GET_DATA, zk.read_body(path, watch=True)
        yield "get_children", zk.GET_CHILDREN, zk.read_body(path, watch=True)
        yield "get_children2", zk.GET_CHILDREN2, zk.read_body(path)
    for path, data, flags in (
        ("/hostile", b"x" * 100, 0),
        ("/hostile/lock-", b"", zk.EPHEMERAL | zk.SEQUENTIAL),
        ("/brokers/topics/hostile-made", ASSIGNMENT, 0),
        ("/config/topics/hostile-later", SETTINGS, 0),
        ("/config/changes/config_change_", b'{"version":1}', zk.SEQUENTIAL),
        ("/admin/delete_topics/hostile-made", b"", 0),
        ("/admin/preferred_replica_election", b'{"version":1,"partitions":[]}', 0),
        ("/admin/reassign_partitions", b'{"version":1,"partitions":[]}', 0),
        ("/consumers/hostile", None, 0),
        (CONSUMER, b'{"version":1,"subscription":{"hostile":1}}', zk.EPHEMERAL),
        (f"/consumers/hostile/owners/{TOPIC}/0", b"c-1-0", zk.EPHEMERAL),
        (OFFSET, b"1", 0),
    ):
        yield "create", zk.CREATE, zk.create_body(path, data, flags)
        yield "create2", zk.CREATE2, zk.create_body(path, data, flags)
    for path, data in (
        ("/hostile", b"y"),
        (OFFSET, b"2"),
        (f"/config/topics/{TOPIC}", SETTINGS),
        (f"/brokers/topics/{TOPIC}", ASSIGNMENT),
    ):
        yield "set_data", zk.SET_DATA, zk.set_body(path, data)
    for path in ("/hostile", OFFSET, CONSUMER, "/consumers/hostile"):
        yield "delete", zk.DELETE, zk.path_body(path)
    yield "check", zk.CHECK, zk.path_body("/hostile", 0)
    yield "sync", zk.SYNC, zk.text("/")
    yield "get_acl", zk.GET_ACL, zk.text("/hostile")
    yield "set_acl", zk.SET_ACL, zk.text("/hostile") + ACLS + struct.pack(">i", -1)
    yield "multi", zk.MULTI, zk.multi_body(_parts())
    watches = struct.pack(">q", 0) + 3 * zk.texts(["/hostile", OFFSET])
    yield "set_watches", zk.SET_WATCHES, watches
    yield "set_watches2", zk.SET_WATCHES2, watches + 2 * zk.texts([])
    yield "ping", zk.PING, b""
    yield "close", zk.CLOSE, b""
    yield "auth", zk.AUTH, struct.pack(">i", 0) + zk.text("digest") + zk.text("anna:secret")
    yield "unknown", 21, zk.text("/hostile")


def _parts() -> list[tuple[int, bytes]]:
    return [
        (zk.CREATE, zk.create_body("/hostile/a", b"1")),
        (zk.SET_DATA, zk.set_body("/hostile/a", b"2")),
        (zk.CHECK, zk.path_body("/hostile/a", 1)),
        (zk.DELETE, zk.path_body("/hostile/a")),
    ]


def _commands() -> Iterator[CommandRow]:
    for name, op, body in _operations():
        yield CommandRow(name, zk.request_frame(7, op, body))
    for client, name, request, _ in recorded("zookeeper/frames.tsv"):
        if name not in ("connect", "operation") and request:
            yield CommandRow(f"{name}, recorded from {client}", bytes.fromhex(request))


def _first() -> Iterator[CommandRow]:
    """Yield first frames of a connection that asks for a session."""
    yield CommandRow("connect", CONNECT)
    yield CommandRow("connect again", zk.connect_frame(TIMEOUT_MS, 1 << 40, bytes(range(16))))
    yield CommandRow("connect, newer", zk.connect_frame(TIMEOUT_MS, zxid_seen=1 << 60))


def protocol() -> Protocol:
    """Return the attack on the ZooKeeper listener."""
    commands = list(_commands())
    return Protocol(
        "zookeeper",
        [
            ConnectionKind(ZOOKEEPER, [CONNECT], [], commands, weight=12),
            ConnectionKind(ZOOKEEPER, [], [], list(_first())),
            ConnectionKind(
                RAW, [], [], [CommandRow(word, word.encode() + CONNECT) for word in WORDS]
            ),
        ],
    )
