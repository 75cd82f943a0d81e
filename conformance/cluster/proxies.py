"""Cuts without network namespaces: everything runs on loopback, behind TCP proxies.

Each broker has its own proxy in front of PostgreSQL, of the object store and of each of its
listeners. A healed cut lets held bytes pass, as TCP resends lost packets. In front of a listener,
the asking broker is unknown: a cut there affects all brokers.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from braidlog.broker.cluster.links import MAC_BYTES, MAGIC, NONCE_BYTES
from conformance.cluster.network import LOOPBACK, ServerPlace

BROKERS: Final = "node"  # The names of all brokers begin so.
CHUNK_BYTES: Final = 1 << 16
CONNECT_S: Final = 10.0
# The asked broker's bytes before its first answer.
HANDSHAKE_BYTES: Final = len(MAGIC) + NONCE_BYTES + MAC_BYTES


class Proxies:
    """Offers the interface of `Network`; a context manager."""

    def __init__(self) -> None:
        self._cuts: set[tuple[str, str]] = set()
        self._changed = threading.Condition()
        self._is_closed = False
        self._sockets: list[socket.socket] = []
        self._losing: str | None = None

    def place(self, name: str) -> ServerPlace:
        """Return the place of a party."""
        return LOOPBACK

    def through(self, source: str, target: str, address: tuple[str, int]) -> tuple[str, int]:
        """Return the address at which `source` reaches `target`, which listens at `address` now or
        later.
        """
        listening = socket.create_server((LOOPBACK.host, 0))
        self._sockets.append(listening)
        self._start(self._accept, listening, source, target, address)
        host, port = listening.getsockname()
        return host, port

    def cut(self, sender: str, receiver: str) -> None:
        """Hold all bytes from the sender to the receiver from now on."""
        with self._changed:
            self._cuts.add((sender, receiver))

    def heal(self) -> None:
        """End all cuts."""
        with self._changed:
            self._cuts.clear()
            self._changed.notify_all()

    def lose_answer(self, broker: str | None) -> None:
        """Lose that broker's next answer to another broker; None: lose no answer."""
        with self._changed:
            self._losing = broker

    @property
    def has_lost(self) -> bool:
        """Return True once the answer of `lose_answer` is lost."""
        return self._losing is None

    def close(self) -> None:
        """End every connection."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for connection in self._sockets:
            _end(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(
        self, listening: socket.socket, source: str, target: str, address: tuple[str, int]
    ) -> None:
        with suppress(OSError):  # Closed at the end of the run.
            while True:
                client, _ = listening.accept()
                self._start(self._serve, client, source, target, address)

    def _serve(
        self, client: socket.socket, source: str, target: str, address: tuple[str, int]
    ) -> None:
        self._await_way(source, target)
        self._await_way(target, source)
        try:
            server = socket.create_connection(address, CONNECT_S)
        except OSError:  # Nobody listens there: the client sees the same.
            _end(client)
            return
        server.settimeout(None)
        self._sockets += [client, server]
        self._start(self._pump, client, server, source, target)
        self._pump(server, client, target, source)

    def _pump(
        self, reading: socket.socket, writing: socket.socket, sender: str, receiver: str
    ) -> None:
        passed = 0
        try:
            while data := reading.recv(CHUNK_BYTES):
                self._await_way(sender, receiver)
                if receiver == BROKERS and passed >= HANDSHAKE_BYTES and self._loses(sender):
                    break
                writing.sendall(data)
                passed += len(data)
        except OSError:  # An end has closed: close the other end too.
            pass
        finally:
            _end(reading)
            _end(writing)

    def _loses(self, sender: str) -> bool:
        """Return True if the present answer must be lost."""
        with self._changed:
            if self._losing != sender:
                return False
            self._losing = None
            return True

    def _await_way(self, sender: str, receiver: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._is_cut(sender, receiver))

    def _is_cut(self, sender: str, receiver: str) -> bool:
        return any(
            _means(sender, source) and _means(receiver, other) for source, other in self._cuts
        )


def _means(party: str, name: str) -> bool:
    return party == name or (party == BROKERS and name.startswith(BROKERS))


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # The peer may have closed the connection.
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
