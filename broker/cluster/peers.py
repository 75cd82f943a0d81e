"""The interface of the peers: work for the other brokers of the cluster.

`Peers` has the calls by name. Its implementations carry them: `Alone` (`alone.py`, a broker without
a cluster) and `ClusterPeers` (`cluster_peers.py`, over connections between brokers).

Guarantees:

* A call carries the client's principal (`Asker`); the other broker checks the rights again.
* A call that changes something returns once the change is published: the change is durable then.
* `NotOwner`: nothing was done, and the caller may try again. `Unanswered`: the change may have been
  made, so the caller must not ask again. A call that only reads raises `NotOwner` in both cases.
  Other broker errors are the errors of the other broker.
* Calls to several brokers run at the same time; an error of a broker concerns its part alone.
* A forwarded connection (`forward`) carries bytes to a listener of the other broker, over the
  internal port, as if the client had connected there. Its end says nothing about work under way.
* A caller awaits an owner by `tries`: news of owners wake the caller, as does a stop of the broker.
* A caller that is cancelled leaves nothing behind but a call that was sent and may be carried out.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from braidlog.broker import errors
from braidlog.broker.access.rights import ANONYMOUS, Principal
from braidlog.broker.cluster.gathered import Gathered
from braidlog.broker.errors import BrokerError, NotOwner, Unanswered
from braidlog.broker.positions.members import LiveGroup, SubscriptionMember
from braidlog.storage.metadata.catalogue_records import SchemaMeta
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.cluster.placement import Tries

KEPT_S: Final = 1.0  # For the sizes of other brokers' topics: a list does not wait longer.

Result = Any  # Of a call; each call has its own type.
# Topic's full name, partition, offset, metadata, time in microseconds, leader epoch.
Commit = tuple[str, int, int, bytes | None, int, int]
# Topic's full name, and partition.
Place = tuple[str, int]
# Messages, bytes and segments of a topic.
StoredSizes = tuple[int, int, int]
# Offset, metadata and leader epoch as committed; None: never set.
Committed = tuple[int, bytes | None, int] | None

# A position and the number of unacknowledged records; None: the group has no position.
Standing = tuple[int, int] | None


@dataclass(slots=True, frozen=True)
class Asker:
    """The client for which a broker asks; the other broker checks its rights once more."""

    principal: Principal
    at: str  # The client's address, for the audit log.


NO_ASKER: Final = Asker(ANONYMOUS, "")  # Of calls without a check of rights.


class Peers(abc.ABC):
    """The other brokers. `node` is a broker's number, 0 if nobody owns the topic now."""

    is_alone: bool
    """True if this broker owns every topic, always."""

    def __init__(self) -> None:
        self._gathered_sizes = Gathered(self._ask_stored_sizes)

    # An implementation's part.

    @abc.abstractmethod
    def nodes(self) -> Sequence[int]:
        """Return the numbers of the other brokers."""

    @abc.abstractmethod
    async def ask(self, node: int, asker: Asker, name: str, *arguments: object) -> Result:
        """Return the result of a call, which `broker/cluster/answers.py` answers at the other
        broker. Raises the other broker's error; NotOwner, Unanswered.
        """

    @abc.abstractmethod
    async def ask_all(self, name: str, *arguments: object, seconds: float) -> Sequence[Result]:
        """Return the results of a call by the other brokers that answer within that time."""

    @abc.abstractmethod
    async def follow(self) -> None:
        """Follow the catalogue as far as its owner has come: other brokers may have told clients of
        changes that are unknown here. Raises NotOwner if the owner does not answer.
        """

    @abc.abstractmethod
    async def forward(self, node: int, listener: str) -> trio.SocketStream:
        """Return a connection to the listener of that name of another broker. Raises NotOwner."""

    @abc.abstractmethod
    def tries(self, seconds: float) -> Tries:
        """Return the tries of a request that needs an owner; taken before the first try."""

    # Calls.

    async def commit(
        self, asker: Asker, group: bytes, commits: Sequence[tuple[int, Commit]]
    ) -> Sequence[BrokerError | None]:
        """Commit positions of topics at the nodes that own them; return the error of each commit,
        if any, in order.
        """
        results: list[BrokerError | None] = [None] * len(commits)

        async def at(node: int, numbers: Sequence[int]) -> None:
            chosen = [commits[number][1] for number in numbers]
            try:
                answers = await self.ask(node, asker, "commit", group, chosen)
                outcomes = [None if named is None else unnamed_error(named) for named in answers]
            except BrokerError as error:
                outcomes = [error] * len(numbers)
            for number, result in zip(numbers, outcomes, strict=True):
                results[number] = result

        await _at_each(commits, at)
        return results

    async def committed(
        self, asker: Asker, group: bytes, wanted: Sequence[tuple[int, Place]], deadline: float
    ) -> Mapping[Place, Committed | BrokerError]:
        """Return a group's positions on topics of these nodes, or the error of each position, such
        as TopicNotFound; NotOwner if the topic has moved, or the node does not answer before the
        deadline.
        """
        results: dict[Place, Committed | BrokerError] = {}

        async def at(node: int, numbers: Sequence[int]) -> None:
            chosen = [wanted[number][1] for number in numbers]
            late = NotOwner(f"broker {node} does not answer in time")
            results.update(dict.fromkeys(chosen, late))
            with trio.move_on_at(deadline):
                try:
                    answers = await self._look(node, asker, "committed", group, chosen)
                except BrokerError as error:
                    results.update(dict.fromkeys(chosen, error))
                    return
                results.update(dict.fromkeys(chosen))
                for name, index, committed, *refusal in answers:
                    results[name, index] = _position(committed, *refusal)

        await _at_each(wanted, at)
        return results

    async def positions(
        self, asker: Asker, group: bytes, namespace: tuple[str, str]
    ) -> Sequence[Place]:
        """Return every place at other brokers where a group has a position in a namespace. Raises
        NotOwner if a broker does not answer.
        """
        places: list[Place] = []
        for node in self.nodes():
            answer = await self._look(node, asker, "positions", group, *namespace)
            places += [(name, index) for name, index in answer]
        return places

    async def groups(
        self, namespace: tuple[str, str], counts: Mapping[int, int]
    ) -> Mapping[str, Sequence[bytes]]:
        """Return the subscriptions of a namespace's topics at these nodes, by full name of the
        topic. `counts`: the number of topics that the caller expects at each node. No right is
        checked. Raises NotOwner if a node does not answer, or owns another number of topics.
        """
        groups: dict[str, Sequence[bytes]] = {}
        for node, count in counts.items():
            groups.update(await self._look(node, NO_ASKER, "groups", *namespace, count))
        return groups

    async def group_positions(
        self, group: bytes, namespace: tuple[str, str], counts: Mapping[int, int]
    ) -> Mapping[str, Mapping[int, int]]:
        """Return a group's positions on the topics where the group has a subscription, by full name
        of the topic and by partition. Otherwise as `groups`.
        """
        positions: dict[str, Mapping[int, int]] = {}
        for node, count in counts.items():
            arguments = (*namespace, count, group)
            answer = await self._look(node, NO_ASKER, "group_positions", *arguments)
            positions.update({full: dict(offsets) for full, offsets in answer})
        return positions

    async def topic_positions(
        self, node: int, group: bytes, topic: TopicName
    ) -> Mapping[int, int] | None:
        """Return a group's positions on a topic, by partition; None without a subscription. No
        right is checked. Raises NotOwner, TopicNotFound.
        """
        offsets = await self._look(node, NO_ASKER, "topic_positions", group, topic.full)
        return None if offsets is None else dict(offsets)

    async def commit_forward(self, node: int, asker: Asker, group: bytes, commit: Commit) -> bool:
        """Commit a position unless the group's position is beyond; return False then. Raises
        NotOwner, Unanswered, NotAuthorized, and the errors of a commit.
        """
        return bool(await self.ask(node, asker, "commit_forward", group, commit))

    async def end_position(
        self, node: int, asker: Asker, group: bytes, place: Place, protocol: str
    ) -> None:
        """End a group's cursor. Raises NotOwner, Unanswered, NotAuthorized, SubscriptionNotFound;
        SubscriptionBusy while a member of another protocol reads the topic.
        """
        await self.ask(node, asker, "end_position", group, *place, protocol)

    async def seek(self, node: int, asker: Asker, group: bytes, place: Place, offset: int) -> None:
        """Set a group's cursor and forget its acknowledgements; make the group if needed. Raises
        NotOwner, Unanswered, NotAuthorized, and the errors of a commit.
        """
        await self.ask(node, asker, "seek", group, *place, offset)

    async def standing(self, node: int, asker: Asker, group: bytes, place: Place) -> Standing:
        """Return a group's position and its number of unacknowledged records; None without a
        position. Raises NotOwner, NotAuthorized, TopicNotFound, PartitionNotFound.
        """
        standing = await self._look(node, asker, "standing", group, *place)
        return standing and (standing[0], standing[1])

    async def end_group(self, asker: Asker, group: bytes, namespace: tuple[str, str]) -> bool:
        """Delete a group's subscriptions to a namespace's topics at other brokers; return whether
        the group had any. Raises NotOwner, NotAuthorized; Unanswered also if a part was deleted.
        """
        had_any = False
        for node in self.nodes():
            try:
                had_any |= bool(await self.ask(node, asker, "end_group", group, *namespace))
            except NotOwner as error:
                if had_any:
                    raise Unanswered(str(error)) from error
                raise
        return had_any

    async def schema(
        self,
        node: int,
        asker: Asker,
        topic: TopicName,
        *,
        version: int | None,
        non_persistent: bool,
    ) -> tuple[int, SchemaMeta] | None:
        """Return a schema of a topic with its version, the latest without `version`; None if
        missing. `non_persistent`: of the non-persistent topic of that name. Raises NotOwner,
        NotAuthorized.
        """
        schema = await self._look(node, asker, "schema", topic.full, version, non_persistent)
        if schema is None:
            return None
        number, kind, name, data, properties = schema
        return number, SchemaMeta(kind, name, data, properties)

    async def purge(self, node: int, asker: Asker, topic: str) -> None:
        """Drop all records of a topic, by its full name. Raises NotOwner, Unanswered,
        NotAuthorized.
        """
        await self.ask(node, asker, "purge", topic)

    async def stored_sizes(self) -> Mapping[str, StoredSizes]:
        """Return the sizes of other brokers' topics, by full name, without brokers that do not
        answer soon. For sizes in lists: no right is checked. Concurrent callers share the answers.
        """
        return await self._gathered_sizes()

    async def _ask_stored_sizes(self) -> Mapping[str, StoredSizes]:
        answers = await self.ask_all("kept", seconds=KEPT_S)
        return {name: (a, b, c) for answer in answers for name, a, b, c in answer}

    async def non_persistent(self, namespace: tuple[str, str]) -> Mapping[str, TopicName]:
        """Return a namespace's non-persistent topics that other brokers have in use, by full name,
        each partition; none of a broker that does not answer soon. No right is checked.
        """
        answers = await self.ask_all("non_persistent", *namespace, seconds=KEPT_S)
        named = [name for answer in answers for name in answer]
        return {full: TopicName(*namespace, topic) for full, topic in named}

    async def joined_groups(
        self, name: bytes | None = None
    ) -> tuple[Sequence[LiveGroup], Sequence[int]]:
        """Return the groups that clients have joined at other brokers, or only those of a name; and
        the numbers of the brokers that do not answer soon. No right is checked.
        """
        answers, silent = await self._ask_each("joined_groups", name)
        groups = [msgspec.convert(group, LiveGroup) for answer in answers for group in answer]
        return groups, silent

    async def group_members(
        self, topic: TopicName, group: bytes
    ) -> tuple[Sequence[Sequence[SubscriptionMember]], Sequence[int]]:
        """Return the members that read a topic in a group, as each other broker knows them; and the
        numbers of the brokers that do not answer soon. No right is checked.
        """
        answers, silent = await self._ask_each("group_members", topic.full, group)
        return [[SubscriptionMember(*fields) for fields in answer] for answer in answers], silent

    async def _ask_each(
        self, name: str, *arguments: object
    ) -> tuple[Sequence[Result], Sequence[int]]:
        """Return the results of a call that checks no right by the other brokers, and the numbers
        of the brokers that do not answer within `KEPT_S`.
        """
        results: dict[int, Result] = {}
        nodes = sorted(self.nodes())

        async def ask_node(node: int) -> None:
            with suppress(BrokerError):  # The caller names the broker.
                results[node] = await self.ask(node, NO_ASKER, name, *arguments)

        with trio.move_on_after(KEPT_S):
            async with trio.open_nursery() as nursery:
                for node in nodes:
                    nursery.start_soon(ask_node, node)
        silent = [node for node in nodes if node not in results]
        return [results[node] for node in nodes if node in results], silent

    async def _look(self, node: int, asker: Asker, name: str, *arguments: object) -> Result:
        """As `ask` for a call that changes nothing. Raises NotOwner if there is no answer."""
        with nothing_done():
            return await self.ask(node, asker, name, *arguments)


def named_error(error: BrokerError) -> list[str]:
    """Return a broker error as brokers send it."""
    return [type(error).__name__, str(error)]


def unnamed_error(named: Sequence[str]) -> BrokerError:
    """Return the broker error that another broker has sent."""
    name, text = named
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, BrokerError):
        if kind is errors.OffsetOutOfRange:
            return errors.InvalidRequest(text)
        return kind(text)
    return errors.Conflict(f"{name}: {text}")


async def _at_each(
    wanted: Sequence[tuple[int, object]],
    ask: Callable[[int, Sequence[int]], Awaitable[None]],
) -> None:
    """Ask every node of `wanted` at the same time, with the indexes of its items."""
    by_node: dict[int, list[int]] = {}
    for number, (node, _) in enumerate(wanted):
        by_node.setdefault(node, []).append(number)
    async with trio.open_nursery() as nursery:
        for node, numbers in by_node.items():
            nursery.start_soon(ask, node, numbers)


@contextmanager
def nothing_done() -> Iterator[None]:
    """Turn Unanswered into NotOwner for a call that changes nothing, as the call can be
    repeated.
    """
    try:
        yield
    except Unanswered as error:
        raise NotOwner(str(error), 0) from error


def _position(
    committed: Sequence[Any] | None, error: Sequence[str] | None = None
) -> Committed | BrokerError:
    """Return a position as `Answers` sends it; an error follows only if there is an error."""
    if error is not None:
        return unnamed_error(error)
    return None if committed is None else (committed[0], committed[1], committed[2])
