"""Random operations of several sessions on a tree, over connection cuts, SIGKILLs and expiry, each
compared with the model. All randomness comes from the seed.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from conformance.clients.raw import zookeeper as zk
from conformance.clients.raw.zookeeper import SessionExpired, Stat, ZooKeeper, ZooKeeperError
from conformance.tree.model import (
    ABSENT,
    CHILDREN,
    DATA,
    FIRED,
    UNKNOWN,
    ChangeRefused,
    Event,
    Events,
    ModelNode,
    ModelTree,
    Operation,
    Watch,
)

if TYPE_CHECKING:
    from conformance.server import RunningBroker

SESSIONS: Final = 4
NAMES: Final = ("a", "b", "c")
LARGE_TIMES: Final = 1000  # Data of up to 200 KB, which leave in pieces.
DEPTH_MAX: Final = 3
SETTINGS: Final = ("listeners.zookeeper.tick_ms=1500",)
SHORT_MS, LONG_MS = 3000, 30_000  # The least and the greatest timeout of a session, at that tick.
KINDS: Final = (DATA, ABSENT, CHILDREN)  # In the order of `setWatches`.
EXPIRY_LIMIT_S: Final = 30.0
LOOK_S: Final = 0.1


class TreesDiffer(AssertionError):
    """The broker and the model differ; the text has both."""


class TreeMachine:
    """Sessions of a broker, and the model. `steps` lists the steps so far."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        """Begin with an empty tree below a root of this seed."""
        self.random = random.Random(seed)
        self.steps: list[str] = []
        self.counts: Counter[str] = Counter()
        self._broker = broker
        self._viewer = self._begin(LONG_MS)
        root = f"/tree-{seed}"
        self._viewer.create(root, None)
        _, stat = self._viewer.get(root)
        node = ModelNode(None, stat.czxid, stat.mzxid, stat.pzxid)
        self.tree = ModelTree(root, {root: node}, zxid=stat.czxid)
        self._clients = [self._begin(LONG_MS) for _ in range(SESSIONS)]
        # By session: groups of events that its client must receive, and the client's own watches.
        self._expected: dict[int, list[set[Event]]] = {}
        self._watched: dict[int, set[Watch]] = {}

    def _begin(self, timeout_ms: int) -> ZooKeeper:
        client = ZooKeeper(timeout_ms)
        client.connect(self._broker.address("zookeeper"))
        return client

    def leave(self) -> None:
        """Have every client receive its last events, and end all sessions. Raises TreesDiffer."""
        self._settle()
        for client in (*self._clients, self._viewer):
            if client.is_connected:
                client.end()

    # Steps

    def step(self) -> None:
        """Make a random step. Raises TreesDiffer."""
        weights = {self._change: 50, self._read: 50, self._together: 8, self._cut: 4}
        weights |= {self._cut_off: 3, self._replace: 2}
        (step,) = self.random.choices(list(weights), list(weights.values()))
        self._note(step.__name__.strip("_"))
        step()

    def kill(self) -> None:
        """Kill the broker while a request is under way, and start it again."""
        self._note("kill")
        client, operation = self._client(), self._operation()
        client.send(operation.op, operation.body())
        time.sleep(self.random.choice([0.0, 0.001, 0.003]))
        self._broker.signal(signal.SIGKILL)
        self._broker.wait()
        self._broker.start()
        clients = [client, *(other for other in self._clients if other is not client)]
        self._viewer.connect(self._broker.address("zookeeper"))
        self._resolve(clients, operation)

    def expire(self) -> None:
        """Let a session without a connection expire: not too early, and with its nodes."""
        self._note("expire")
        client = self._begin(SHORT_MS)
        path = f"{self.tree.root}/short"
        self._compare(client, Operation(zk.CREATE, path, b"", flags=zk.EPHEMERAL))
        heard = time.monotonic()
        client.ping()
        client.disconnect()
        while (self._viewer.exists(path)) is not None:
            if time.monotonic() - heard > EXPIRY_LIMIT_S:
                self._fail(f"session {client.session_id:#x} does not expire")
            time.sleep(LOOK_S)
        if time.monotonic() - heard < SHORT_MS / 1000:
            self._fail(f"session {client.session_id:#x} expired early")
        zxid = self._viewer.get(self.tree.root)[1].pzxid
        self._expect(self.tree.end_session(client.session_id, zxid))
        try:
            client.connect(self._broker.address("zookeeper"))
        except SessionExpired:
            return
        self._fail("an expired session went on")

    def _note(self, step: str) -> None:
        self.steps.append(step)
        self.counts[step] += 1

    def _fail(self, text: str) -> None:
        raise TreesDiffer(f"{text}\nlast steps: {self.steps[-12:]}")

    def _client(self) -> ZooKeeper:
        return self.random.choice(self._clients)

    def _path(self) -> str:
        depth = self.random.randint(1, DEPTH_MAX)
        return "/".join((self.tree.root, *self.random.choices(NAMES, k=depth)))

    def _operation(self, *, in_multi: bool = False) -> Operation:
        chance, path = self.random, self._path()
        ops = [zk.CREATE, zk.CREATE, zk.SET_DATA, zk.DELETE]
        ops += [zk.CHECK] if in_multi else [zk.MULTI]
        op = chance.choice(ops)
        if op == zk.MULTI:
            count = chance.randint(1, 4)
            return Operation(op, parts=[self._operation(in_multi=True) for _ in range(count)])
        small = chance.randbytes(chance.randint(1, 200))
        (data,) = chance.choices([None, b"", small, small * LARGE_TIMES], [3, 3, 3, 1])
        if op == zk.CREATE:
            flags = chance.choice([0, 0, zk.EPHEMERAL]) | (
                0 if in_multi else chance.choice([0, 0, 0, zk.SEQUENTIAL])
            )
            return Operation(op, path, data, flags=flags)
        node = self.tree.nodes.get(path)
        version = 0 if node is None else node.version
        version = chance.choice([zk.ANY_VERSION, version, version, version + 1])
        return Operation(op, path, data, version)

    def _change(self) -> None:
        self._compare(self._client(), self._operation())

    def _compare(self, client: ZooKeeper, operation: Operation) -> None:
        """Make a change in both."""
        before = client.zxid
        answer = self._ask(client, operation)
        if client.zxid < before:
            self._fail(f"zxid {client.zxid:#x} after {before:#x}")
        self._check_change(client, operation, answer)

    def _ask(self, client: ZooKeeper, operation: Operation) -> object:
        """Return the answer to a change, or its error."""
        try:
            if operation.op == zk.MULTI:
                return client.multi([(part.op, part.body()) for part in operation.parts])
            reader = client.call(operation.op, operation.body())
        except ZooKeeperError as error:
            return error.code
        if operation.op == zk.CREATE:
            return reader.text()
        if operation.op == zk.SET_DATA:
            return reader.stat()
        return None

    def _check_change(self, client: ZooKeeper, operation: Operation, answer: object) -> None:
        zxid = client.zxid
        try:
            result, events = self.tree.change(client.session_id, operation, zxid)
        except ChangeRefused as refused:
            result, events = refused.code, {}
        if isinstance(answer, Stat):
            self._check_stat(operation.path, answer)
        elif answer != result:
            self._fail(f"{operation}: {answer}, expected {result}")
        self._expect(events)
        self._check_events(client)

    def _read(self) -> None:
        chance, client, path = self.random, self._client(), self._path()
        is_watched = chance.random() < 0.5
        kind = chance.choice(["get", "exists", "children"])
        node = self.tree.nodes.get(path)
        try:
            if kind == "children":
                names, stat = client.children(path, watch=is_watched)
                if sorted(names) != self.tree.names(path):
                    self._fail(f"children of {path}: {names}, expected {self.tree.names(path)}")
            elif kind == "get":
                data, stat = client.get(path, watch=is_watched)
                if node is None or data != node.data:
                    self._fail(f"{path}: {data!r}, expected {node}")
            else:
                seen = client.exists(path, watch=is_watched)
                if seen is None:
                    raise ZooKeeperError(zk.NO_NODE)
                stat = seen
        except ZooKeeperError as error:
            if node is not None or error.code != zk.NO_NODE:
                self._fail(f"{kind} {path}: error {error.code}, expected {node}")
            if is_watched and kind == "exists":
                self._watch(client, ABSENT, path)
        else:
            self._check_stat(path, stat)
            if is_watched:
                self._watch(client, CHILDREN if kind == "children" else DATA, path)
        self._check_events(client)

    def _watch(self, client: ZooKeeper, kind: str, path: str) -> None:
        self.tree.watch(client.session_id, kind, path)
        self._watched.setdefault(client.session_id, set()).add((kind, path))

    def _check_stat(self, path: str, seen: Stat) -> None:
        if path not in self.tree.nodes:
            self._fail(f"{path} is there: {seen}")
        wanted = self.tree.stat(path)
        if _numbers(seen) != wanted or seen.ctime > seen.mtime:
            self._fail(f"numbers of {path}: {seen}, expected {wanted}")

    def _together(self) -> None:
        """Have all sessions send a change before any reads its answer; zxids give the order."""
        wanted = [(client, self._operation()) for client in self._clients]
        for client, operation in wanted:
            client.send(operation.op, operation.body())
        answers = [self._receive(client, operation) for client, operation in wanted]
        order = sorted(range(len(wanted)), key=lambda number: self._clients[number].zxid)
        numbers = [self._clients[number].zxid for number in order]
        if len(set(numbers)) != len(numbers):
            self._fail(f"two changes have the same zxid: {numbers}")
        for number in order:
            client, operation = wanted[number]
            try:
                result, events = self.tree.change(client.session_id, operation, client.zxid)
            except ChangeRefused as refused:
                result, events = refused.code, {}
            if not isinstance(answers[number], Stat) and answers[number] != result:
                self._fail(f"{operation}: {answers[number]}, expected {result}")
            self._expect(events)
        self._settle()

    def _receive(self, client: ZooKeeper, operation: Operation) -> object:
        try:
            reader = client.receive()
        except ZooKeeperError as error:
            return error.code
        if operation.op == zk.CREATE:
            return reader.text()
        if operation.op == zk.MULTI:
            return zk.multi_codes(reader)
        return reader.stat() if operation.op == zk.SET_DATA else None

    def _settle(self) -> None:
        """Have every client receive its events."""
        for client in self._clients:
            client.call(zk.SYNC, zk.text(self.tree.root))
            self._check_events(client)

    def _cut(self) -> None:
        """Lose a connection between two requests."""
        client = self._client()
        self._lose(client)
        if self.random.random() < 0.7:  # Others go on meanwhile.
            other = self.random.choice([other for other in self._clients if other is not client])
            self._compare(other, self._operation())
        client.connect(self._broker.address("zookeeper"))
        self._watch_again(client)

    def _cut_off(self) -> None:
        """Lose a connection with a request under way."""
        client, operation = self._client(), self._operation()
        client.send(operation.op, operation.body())
        self._resolve([client], operation)

    def _resolve(self, lost: list[ZooKeeper], operation: Operation) -> None:
        """Find out if the first client's request was carried out, and go on. All of `lost` are
        disconnected first.
        """
        for client in lost:
            self._lose(client)
        # From now on the broker carries out nothing from the session's last connection.
        lost[0].connect(self._broker.address("zookeeper"))
        seen = self._seen()
        after = self.tree.copy()
        try:
            _, events = after.change(lost[0].session_id, operation, UNKNOWN)
        except ChangeRefused:
            events = {}
        is_made = not self.tree.matches(seen)
        if is_made and after.matches(seen):
            after.adopt(seen)
            self.tree = after
            self._expect(events)
        elif is_made:
            self._fail(f"{operation} without an answer: {_shown(seen)}, before {_shown(self.tree)}")
        for client in lost[1:]:
            client.connect(self._broker.address("zookeeper"))
        for client in lost:
            self._watch_again(client)
        self._settle()

    def _lose(self, client: ZooKeeper) -> None:
        """Drop a connection: its watches end, and events that were not received are lost."""
        client.disconnect()
        self._expected.pop(client.session_id, None)
        self.tree.watches.pop(client.session_id, None)

    def _watch_again(self, client: ZooKeeper) -> None:
        """Set a client's watches again, and compare the events that fire at once."""
        session_id = client.session_id
        watched = self._watched.get(session_id, set())
        self.tree.watches[session_id] = set(watched)
        self._expect({session_id: self.tree.set_again(session_id, client.zxid)})
        lists = [[path for kind, path in sorted(watched) if kind == of] for of in KINDS]
        client.set_watches(*lists)
        self._check_events(client)

    def _seen(self) -> ModelTree:
        """Read the whole tree."""
        tree = ModelTree(self.tree.root)
        paths = [tree.root]
        for path in paths:  # Grows meanwhile.
            data, stat = self._viewer.get(path)
            names, _ = self._viewer.children(path)
            paths += [f"{path}/{name}" for name in names]
            created = (stat.cversion + stat.children) // 2
            node = ModelNode(
                data, stat.czxid, stat.mzxid, stat.pzxid, stat.owner, stat.version, created
            )
            tree.nodes[path] = node
        return tree

    def _replace(self) -> None:
        """End a session, and begin another."""
        client = self._client()
        client.end()
        self._expected.pop(client.session_id, None)
        self._watched.pop(client.session_id, None)
        self._expect(self.tree.end_session(client.session_id, client.zxid))
        self._clients[self._clients.index(client)] = self._begin(LONG_MS)
        self._settle()

    # Events

    def _expect(self, events: Events) -> None:
        """Each change's events of a session are a group: within a group any order is right."""
        for session_id, fired in events.items():
            if fired:
                self._expected.setdefault(session_id, []).append(set(fired))

    def _check_events(self, client: ZooKeeper) -> None:
        """Compare the events before a client's answer with the expected events, all of them."""
        for group in self._expected.pop(client.session_id, []):
            seen = {client.events.popleft() for _ in range(min(len(group), len(client.events)))}
            if seen != group:
                self._fail(f"events {sorted(seen)}, expected {sorted(group)}")
            watched = self._watched.get(client.session_id, set())
            watched -= {(kind, path) for event, path in seen for kind in FIRED[event]}
        if client.events:
            self._fail(f"unexpected events {list(client.events)}")


def _numbers(stat: Stat) -> tuple[int, ...]:
    own = stat.czxid, stat.mzxid, stat.version, stat.cversion, stat.aversion, stat.owner
    return (*own, stat.data_length, stat.children, stat.pzxid)


def _shown(tree: ModelTree) -> dict[str, tuple[int, ...]]:
    return {path: tree.stat(path) for path in sorted(tree.nodes)}
