"""Calls between brokers: changes of the catalogue, and positions of groups.

The broker that is asked checks the client's rights once more, and answers once what it did is
published. Who asks for a change goes on once it has followed it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from broker import errors
from broker.access.rights import Action, Principal, Resource
from broker.cluster.links import (
    Hello,
    LinkLost,
    connect,
    receive_message,
    send_message,
)
from broker.cluster.placement import NOBODY, Owner, elsewhere
from broker.cluster.siblings import Asker, Commit, Committed, Siblings, named_error
from broker.cluster.topics import carry_out
from broker.subscriptions.subscriptions import KafkaCommit
from storage.metadata.names import TopicName

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.cluster.placement import ClusterPlacement

# Name of the internal port among a session's doors.
DOOR: Final = "cluster"
CALL_S: Final = 15.0  # A change waits for a round, which waits for the object store.
FIND_S: Final = 3.0  # For an owner of the catalogue to be there: a shard changes hands in less.
LOOK_S: Final = 0.05
IDLE_MAX: Final = 8  # Connections to one broker that are kept for the next calls.
CALLS_MAX: Final = 64  # Under way to all brokers: each holds a connection.


class Call(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A question. `principal` is its name, its roles, and whether it is anonymous."""

    name: str
    arguments: list[Any]
    principal: tuple[str, list[str], bool] = ("", [], False)
    at: str = ""


class Reply(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An answer, or the broker error; `place` is how far the catalogue has come."""

    result: Any = None
    error: list[str] | None = None
    place: int = 0


class Home(Siblings):
    """The other brokers, as this one asks them."""

    def __init__(
        self,
        placement: ClusterPlacement,
        hello: Hello,
        secret: bytes,
        reached: Callable[[int], Awaitable[None]],
    ) -> None:
        """`reached` waits until the catalogue was followed up to a place."""
        self._placement = placement
        self._hello = hello
        self._secret = secret
        self._reached = reached
        self._idle: dict[tuple[str, int], list[trio.SocketStream]] = {}
        self._limit = trio.CapacityLimiter(CALLS_MAX)

    async def change(self, name: str, *arguments: object) -> None:
        """Have the owner of the catalogue make a change; it is followed on return. Raises the
        broker error that it raised; OwnedElsewhere.
        """
        deadline = trio.current_time() + FIND_S
        while True:
            owner = self._placement.catalogue_owner()
            try:
                if owner is None:
                    raise elsewhere("the catalogue", NOBODY)  # It has just become ours.
                reply = await self._ask(owner, Call(name, list(arguments)))
                break
            except errors.OwnedElsewhere:
                if trio.current_time() > deadline:
                    raise
                await trio.sleep(LOOK_S)
        await self._reached(reply.place)

    async def commit(
        self, node: int, asker: Asker, group: bytes, commits: Sequence[Commit]
    ) -> list[errors.BrokerError | None]:
        """As `Siblings.commit`."""
        reply = await self._ask_node(node, asker, "commit", [group, list(commits)])
        return [None if one is None else _error(one) for one in reply.result]

    async def committed(
        self, node: int, asker: Asker, group: bytes, wanted: Sequence[tuple[str, int]] | None
    ) -> list[tuple[str, int, Committed]]:
        """As `Siblings.committed`."""
        asked = None if wanted is None else list(wanted)
        reply = await self._ask_node(node, asker, "committed", [group, asked])
        return [
            (name, index, None if given is None else (given[0], given[1]))
            for name, index, given in reply.result
        ]

    async def relay(self, node: int, listener: str) -> trio.SocketStream:
        """As `Siblings.relay`."""
        address = self._address(self._owner(node))
        hello = msgspec.structs.replace(self._hello, kind="relay", listener=listener)
        try:
            return await connect(address, self._secret, hello)
        except LinkLost as error:
            raise errors.OwnedElsewhere(str(error), 0) from error

    async def follow(self) -> None:
        """As `Siblings.follow`."""
        owner = self._placement.catalogue_owner()
        if owner is not None and owner is not NOBODY:
            reply = await self._ask(owner, Call("place", []))
            await self._reached(reply.place)

    async def close(self) -> None:
        """End all connections that are kept."""
        idle, self._idle = self._idle, {}
        for streams in idle.values():
            for stream in streams:
                await trio.aclose_forcefully(stream)

    async def _ask_node(self, node: int, asker: Asker, name: str, arguments: list[Any]) -> Reply:
        principal = asker.principal
        who = (principal.name, sorted(principal.roles), principal.is_anonymous)
        return await self._ask(self._owner(node), Call(name, arguments, who, asker.at))

    def _owner(self, node: int) -> Owner:
        for owner in self._placement.others():
            if owner.node_id == node:
                return owner
        raise errors.OwnedElsewhere(f"broker {node} is not there", 0)

    def _address(self, owner: Owner) -> tuple[str, int]:
        address = owner.addresses.get(DOOR)
        if address is None:
            raise errors.OwnedElsewhere(f"broker {owner.node_id} is not reached", 0)
        return address

    async def _ask(self, owner: Owner, call: Call) -> Reply:
        """Raises the error that the answer holds; OwnedElsewhere where there is none."""
        address = self._address(owner)
        async with self._limit:
            try:
                reply = await self._exchange(address, call)
            except LinkLost as error:
                text = f"broker {owner.node_id} does not answer: {error}"
                raise errors.OwnedElsewhere(text, 0) from error
        if reply.error is not None:
            raise _error(reply.error)
        return reply

    async def _exchange(self, address: tuple[str, int], call: Call) -> Reply:
        idle = self._idle.setdefault(address, [])
        stream = idle.pop() if idle else await connect(address, self._secret, self._hello)
        try:
            with trio.fail_after(CALL_S):
                await send_message(stream, call)
                reply = await receive_message(stream, Reply)
        except trio.TooSlowError:
            await trio.aclose_forcefully(stream)
            raise LinkLost(f"no answer within {CALL_S:.0f} s") from None
        except BaseException:  # Cancelled too: an answer to come would be another call's.
            await trio.aclose_forcefully(stream)
            raise
        if len(idle) < IDLE_MAX:
            idle.append(stream)
        else:
            await stream.aclose()
        return reply


def _error(told: Sequence[str]) -> errors.BrokerError:
    name, text = told
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.BrokerError):
        if kind is errors.OffsetOutOfRange:
            return errors.InvalidRequest(text)
        return kind(text)
    return errors.Conflict(f"{name}: {text}")


class Answers:
    """Answers the calls of other brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._answers: dict[str, Callable[[Call], Awaitable[object]]] = {
            "commit": self._commit,
            "committed": self._committed,
            "place": self._place,
        }

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one call after the other until the other side is gone. Raises LinkLost."""
        while True:
            call = await receive_message(stream, Call)
            try:
                result, error = await self._answer(call), None
            except errors.BrokerError as refused:
                result, error = None, named_error(refused)
            await send_message(stream, Reply(result, error, self._reached))

    @property
    def _reached(self) -> int:
        state = self._broker.catalogue.state
        return getattr(state, "place", 0)

    async def _answer(self, call: Call) -> object:
        answer = self._answers.get(call.name)
        if answer is not None:
            return await answer(call)
        broker = self._broker
        owner = broker.placement.catalogue_owner()
        if owner is not None:
            raise elsewhere("the catalogue", owner)
        ticket = await carry_out(broker.topics, broker.namespaces, call.name, call.arguments)
        await broker.durability.reached(ticket)
        return None

    async def _place(self, call: Call) -> None:
        """Everything so far is in the place that the answer tells."""
        await self._broker.durability.settled()

    def _check(self, call: Call, action: Action, group: bytes, topic: TopicName) -> None:
        name, roles, is_anonymous = call.principal
        principal = Principal(name, frozenset(roles), is_anonymous)
        access = self._broker.access
        access.check(principal, action, Resource.of_topic(topic), call.at)
        access.check(principal, action, Resource.of_group(group, topic), call.at)

    async def _commit(self, call: Call) -> list[list[str] | None]:
        group, wanted = call.arguments
        broker = self._broker
        commits = broker.subscriptions.commits(group)
        told: list[list[str] | None] = []
        for full, index, offset, metadata, time_us in wanted:
            name = TopicName(*full.split("/", 2))
            try:
                self._check(call, Action.CONSUME, group, name)
                topic = broker.topics.get(name)
                commits.add(topic, index, offset, kafka=KafkaCommit(offset, metadata, time_us))
                told.append(None)
            except errors.BrokerError as error:
                told.append(named_error(error))
        ticket = commits.write()
        await broker.durability.reached(ticket)
        return told

    async def _committed(self, call: Call) -> list[tuple[str, int, Committed]]:
        group, wanted = call.arguments
        broker = self._broker
        if wanted is None:
            wanted = [
                (topic.name.full, index)
                for topic in broker.topics.all()
                if broker.placement.is_here(topic.name)
                for index in range(len(topic.partitions))
            ]
        found: list[tuple[str, int, Committed]] = []
        for full, index in wanted:
            name = TopicName(*full.split("/", 2))
            try:
                self._check(call, Action.DESCRIBE, group, name)
            except errors.NotAuthorized:
                continue
            topic = broker.topics.get(name)
            topic.partition(index)
            subscription = broker.subscriptions.find(topic, group)
            given = None if subscription is None else subscription.committed(index)
            found.append((full, index, None if given is None else (given.offset, given.metadata)))
        return found
