"""Four-letter words: a line of four letters in place of a session, answered with text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.protocols.zookeeper.listener_state import Service

# Monitoring tools read the release from this line; 3.4.6 has the words and operations served here.
VERSION: Final = "3.4.6-braidlog"
LISTED_MAX: Final = 1000  # Sessions, or paths of ephemeral nodes, that an answer lists.
WORD_BYTES_MAX: Final = 256 * 1024  # Of an answer: 1000 sessions, or paths of usual length.
NOT_ALLOWED: Final = "is not executed because it is not in the whitelist.\n"  # As 3.4.10 does.


def _ruok(_: Service) -> Iterator[str]:
    yield "imok"  # Without a line's end, as ZooKeeper.


def _isro(_: Service) -> Iterator[str]:
    yield "rw"


def _conf(service: Service) -> Iterator[str]:
    tick = service.options.tick_ms
    yield f"tickTime={tick}\n"
    yield f"minSessionTimeout={2 * tick}\nmaxSessionTimeout={20 * tick}\nserverId=0\n"


def _envi(service: Service) -> Iterator[str]:
    yield f"Environment:\nzookeeper.version={VERSION}\n"
    yield f"braidlog.version={service.broker.version}\n"


def _srvr(service: Service) -> Iterator[str]:
    yield f"Zookeeper version: {VERSION}\n"
    held = sum(session.holder is not None for session in service.sessions.live.values())
    yield f"Connections: {held}\nOutstanding: 0\nZxid: {service.nodes.zxid:#x}\n"
    yield f"Mode: standalone\nNode count: {service.nodes.count}\n"


def _cons(service: Service) -> Iterator[str]:
    for session in list(service.sessions.live.values())[:LISTED_MAX]:
        if session.holder is not None:
            timeout_ms = int(session.timeout_s * 1000)
            yield f" /{session.holder.peer}[1](sid={session.session_id:#x},to={timeout_ms})\n"


def _stat(service: Service) -> Iterator[str]:
    head, *rest = _srvr(service)
    yield head
    yield "Clients:\n"
    yield from _cons(service)
    yield "\n"
    yield from rest


def _dump(service: Service) -> Iterator[str]:
    yield "SessionTracker dump:\n"
    yield f"Session Sets ({len(service.sessions.live)}):\n"
    yield f"ephemeral nodes dump:\nSessions with Ephemerals ({_with_ephemerals(service)}):\n"
    room = LISTED_MAX
    for session_id in islice(service.sessions.live, LISTED_MAX):
        owned = list(islice(service.nodes.ephemerals(session_id), room))
        if owned:
            yield f"{session_id:#x}:\n"
            yield from (f"\t{path}\n" for path in sorted(owned))
            room -= len(owned)


def _with_ephemerals(service: Service) -> int:
    return sum(bool(service.nodes.ephemerals(number)) for number in service.sessions.live)


def _wchs(service: Service) -> Iterator[str]:
    watches = service.tree.watches
    paths = sum(map(len, watches.by_path.values()))
    count = watches.count_of_watchers
    yield f"{count} connections watching {paths} paths\nTotal watches:{watches.count}\n"


def _mntr(service: Service) -> Iterator[str]:
    nodes = service.nodes
    owned = sum(len(nodes.ephemerals(number)) for number in service.sessions.live)
    stats = {
        "version": VERSION,
        "server_state": "standalone",
        "num_alive_connections": sum(
            session.holder is not None for session in service.sessions.live.values()
        ),
        "outstanding_requests": 0,
        "znode_count": nodes.count,
        "watch_count": service.tree.watches.count,
        "ephemerals_count": owned,
        "approximate_data_size": nodes.stored_bytes,
    }
    for name, value in stats.items():
        yield f"zk_{name}\t{value}\n"


ANSWERS: Final[Mapping[bytes, Callable[[Service], Iterator[str]]]] = {
    b"ruok": _ruok,
    b"stat": _stat,
    b"srvr": _srvr,
    b"mntr": _mntr,
    b"conf": _conf,
    b"cons": _cons,
    b"dump": _dump,
    b"wchs": _wchs,
    b"isro": _isro,
    b"envi": _envi,
}
BEFORE_LOGIN: Final = frozenset((b"ruok",))


def answer(service: Service, word: bytes, *, is_allowed: bool) -> bytes:
    """Return the answer to a word; without a login only to `ruok`."""
    if not (is_allowed or word in BEFORE_LOGIN):
        return f"{word.decode()} {NOT_ALLOWED}".encode()
    text = bytearray()
    for piece in ANSWERS[word](service):
        text += piece.encode()
        if len(text) >= WORD_BYTES_MAX:
            break
    return bytes(text)
