"""The implementation of `Peers` in a cluster: calls over connections between brokers.

`broker/cluster/answers.py` answers the calls at the other broker. A change of the catalogue returns
once this broker has followed the change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from braidlog.broker import errors
from braidlog.broker.cluster.links import (
    Hello,
    LinkLost,
    NotSent,
    connect,
    has_ended,
    receive_message,
    send_message,
)
from braidlog.broker.cluster.peers import (
    NO_ASKER,
    Asker,
    Peers,
    Result,
    nothing_done,
    unnamed_error,
)
from braidlog.broker.cluster.placement import NOBODY, Owner, Tries, elsewhere
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import ClusterPlacement

# Name of the internal listener among a session's addresses.
INTERNAL: Final = "cluster"
CALL_S: Final = 15.0  # A change waits for a round, which waits for the object store.
FIND_S: Final = 3.0  # For the catalogue to have an owner: a shard moves in less time.
# For this broker, or the owner of a topic, to follow the catalogue as far as another broker: a
# check takes milliseconds, taking shards over a second or two.
FOLLOW_S: Final = 10.0
# For the other brokers to follow a change before the response: they take milliseconds, and a broker
# that hangs must not delay changes.
SPREAD_S: Final = 1.0
IDLE_MAX: Final = 8  # Idle connections per broker, for the next calls.
CALLS_MAX: Final = 64  # Calls under way to all brokers: each holds a connection.

Ask = Callable[[Owner], Awaitable["Reply"]]


class Call(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A request. `principal` is a name, the roles, and True if anonymous."""

    name: str
    arguments: list[Any]
    principal: tuple[str, list[str], bool] = ("", [], False)
    at: str = ""


class Reply(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A response, or the broker error; `place` is the catalogue's place at the other broker."""

    result: Any = None
    error: list[str] | None = None
    place: int = 0


@dataclass(slots=True, frozen=True)
class PeerTimes:
    """The longest waits for other brokers, in seconds: for an owner of the catalogue, for a change
    to be followed by a broker, and for a change to reach all brokers.
    """

    find_s: float = FIND_S
    follow_s: float = FOLLOW_S
    spread_s: float = SPREAD_S


PEER_TIMES = PeerTimes()


class ClusterPeers(Peers):
    """The other brokers of the cluster, with the connections to them."""

    is_alone = False

    def __init__(
        self,
        placement: ClusterPlacement,
        hello: Hello,
        secret: bytes,
        reached: Callable[[int], Awaitable[None]],
        times: PeerTimes = PEER_TIMES,
    ) -> None:
        """`reached` waits until the catalogue was followed up to a place."""
        super().__init__()
        self._placement = placement
        self._hello = hello
        self._secret = secret
        self._reached = reached
        self.times = times
        self._idle: dict[tuple[str, int], list[trio.SocketStream]] = {}
        self._followed: dict[int, int] = {}  # The place of the last reply of each session.
        self._limit = trio.CapacityLimiter(CALLS_MAX)

    async def change(self, asker: Asker, name: str, *arguments: object) -> bool:
        """Forward a change to the catalogue's owner and follow the change, for at most `FOLLOW_S`;
        return False if the owner of the topic may not have followed the change.

        Raises the owner's broker error, NotAuthorized if the asker lacks the right; NotOwner;
        Unanswered. If the change is refused, all changes before it are followed nonetheless.
        """
        call = _call(asker, name, list(arguments))
        reply = await self._ask_catalogue_owner(partial(self._reply, call=call))
        if reply is None:
            raise elsewhere("the catalogue", NOBODY)  # This broker has just become the owner.
        await self._has_followed(reply.place)
        _raise_told(reply)
        return reply.result is not False

    async def _ask_catalogue_owner(self, ask: Ask) -> Reply | None:
        """Return the owner's response, which may be an error; None if this broker is the owner.
        Raises NotOwner, and the errors of `ask`.
        """
        tries = self.tries(self.times.find_s)
        while (owner := self._placement.catalogue_owner()) is not None:
            try:
                if owner is NOBODY:
                    raise elsewhere("the catalogue", owner)
                reply = await ask(owner)
                error = None if reply.error is None else unnamed_error(reply.error)
                if isinstance(error, errors.NotOwner):
                    raise error
                return reply
            except errors.NotOwner as refusal:
                if not await tries.again(refusal):
                    raise
        return None

    async def _has_followed(self, place: int) -> bool:
        """Wait until this broker has followed the catalogue that far; False after `FOLLOW_S`."""
        with trio.move_on_after(self.times.follow_s):
            await self._reached(place)
            return True
        return False

    def tries(self, seconds: float) -> Tries:
        return Tries(self._placement, seconds)

    async def forward(self, node: int, listener: str) -> trio.SocketStream:
        address = self._address(self._owner(node))
        hello = msgspec.structs.replace(self._hello, kind="relay", listener=listener)
        try:
            return await connect(address, self._secret, hello)
        except LinkLost as error:
            raise errors.NotOwner(str(error), 0) from error

    async def follow(self) -> None:
        reply = await self._ask_catalogue_owner(self._place)
        if reply is not None and not await self._has_followed(reply.place):
            raise errors.NotOwner("the catalogue is not followed here now", 0)

    async def _place(self, owner: Owner) -> Reply:
        """Ask how far the catalogue has come. Raises NotOwner."""
        with nothing_done():
            return await self._reply(owner, Call("place", []))

    async def spread(self, place: int, altered: TopicName | None = None) -> bool:
        """Wait until the other brokers that answer have followed the catalogue that far: for
        `SPREAD_S`, and longer for the owner of an altered topic. Return False if `owner_follows`
        does.
        """
        async with trio.open_nursery() as nursery:
            ask = partial(self.ask_all, "reached", place, seconds=self.times.spread_s)
            nursery.start_soon(ask)
            return altered is None or await self.owner_follows(altered, place)

    async def owner_follows(self, topic: TopicName, place: int) -> bool:
        """Wait until the owner of a topic has followed the catalogue that far, for `FOLLOW_S`;
        return False if the owner may serve the topic as it was before. A broker that hangs loses
        the topic, and the next owner follows the catalogue before it owns a topic.
        """
        tries = self.tries(self.times.follow_s)
        with trio.move_on_at(tries.deadline):
            sees_owners = await self._sees_owners(tries)
            while sees_owners:
                owner = self._placement.owner(topic)
                if owner is None or owner is NOBODY or self._has_reached(owner, place):
                    return True
                # The owner answers after `SPREAD_S`, whether or not it has followed.
                with trio.move_on_after(2 * self.times.spread_s), suppress(errors.BrokerError):
                    await self._reply(owner, Call("reached", [place]))
                if not (
                    self._has_reached(owner, place)
                    or await tries.again(elsewhere(str(topic), owner))
                ):
                    break
        return False

    def _has_reached(self, owner: Owner, place: int) -> bool:
        """Return True if a broker is known to have followed the catalogue that far."""
        return self._followed.get(owner.session, 0) >= place

    async def _sees_owners(self, tries: Tries) -> bool:
        """Read the owners: a broker that took a topic before a change of the catalogue may not know
        the change.
        """
        while True:
            try:
                await self._placement.look()
            except errors.NotOwner as error:
                if not await tries.again(error):
                    return False
            else:
                return True

    async def ask_all(self, name: str, *arguments: object, seconds: float) -> Sequence[Result]:
        results: list[Result] = []

        async def ask_node(node: int) -> None:
            with suppress(errors.BrokerError):  # Other results count without this result.
                results.append(await self.ask(node, NO_ASKER, name, *arguments))

        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for node in self.nodes():
                    nursery.start_soon(ask_node, node)
        return results

    async def close(self) -> None:
        """Close all idle connections."""
        idle, self._idle = self._idle, {}
        for streams in idle.values():
            for stream in streams:
                await trio.aclose_forcefully(stream)

    def nodes(self) -> Sequence[int]:
        return [owner.node_id for owner in self._placement.others()]

    async def ask(self, node: int, asker: Asker, name: str, *arguments: object) -> Result:
        reply = await self._reply(self._owner(node), _call(asker, name, list(arguments)))
        _raise_told(reply)
        return reply.result

    def _owner(self, node: int) -> Owner:
        if node == NOBODY.node_id:
            raise elsewhere("the topic", NOBODY)
        for owner in self._placement.others():
            if owner.node_id == node:
                return owner
        raise errors.NotOwner(f"broker {node} is not there", 0)

    def _address(self, owner: Owner) -> tuple[str, int]:
        address = owner.addresses.get(INTERNAL)
        if address is None:
            raise errors.NotOwner(f"broker {owner.node_id} is not reached", 0)
        return address

    async def _reply(self, owner: Owner, call: Call) -> Reply:
        """Return the response, which may be an error. Raises NotOwner if the call was not sent,
        Unanswered without a response.
        """
        address = self._address(owner)
        async with self._limit:
            try:
                reply = await self._exchange(address, call)
            except NotSent as error:
                text = f"broker {owner.node_id} cannot be reached: {error}"
                raise errors.NotOwner(text, 0) from error
            except LinkLost as error:
                text = f"broker {owner.node_id} does not answer: {error}"
                raise errors.Unanswered(text) from error
        self._note_followed(owner.session, reply.place)
        return reply

    def _note_followed(self, session: int, place: int) -> None:
        if session not in self._followed:
            for over in [known for known in self._followed if self._placement.is_over(known)]:
                del self._followed[over]
        self._followed[session] = max(place, self._followed.get(session, 0))

    async def _connected(self, address: tuple[str, int]) -> trio.SocketStream:
        """Return an idle connection that the other side has not ended, or a new connection. Raises
        NotSent.
        """
        idle = self._idle.get(address, [])
        while idle:
            stream = idle.pop()
            if not has_ended(stream):
                return stream
            await trio.aclose_forcefully(stream)
        return await connect(address, self._secret, self._hello)

    async def _exchange(self, address: tuple[str, int], call: Call) -> Reply:
        """Exchange a call and its reply. Raises NotSent, LinkLost."""
        stream = await self._connected(address)
        try:
            with trio.fail_after(CALL_S):
                await send_message(stream, call)
                reply = await receive_message(stream, Reply)
        except trio.TooSlowError:
            await trio.aclose_forcefully(stream)
            raise LinkLost(f"no answer within {CALL_S:.0f} s") from None
        # Includes cancellation: a late reply would be read as the reply to another call.
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        idle = self._idle.setdefault(address, [])
        if len(idle) < IDLE_MAX:
            idle.append(stream)
        else:
            await stream.aclose()
        return reply


def _call(asker: Asker, name: str, arguments: list[Any]) -> Call:
    principal = asker.principal
    identity = (principal.name, sorted(principal.roles), principal.is_anonymous)
    return Call(name, arguments, identity, asker.at)


def _raise_told(reply: Reply) -> None:
    if reply.error is not None:
        raise unnamed_error(reply.error)
