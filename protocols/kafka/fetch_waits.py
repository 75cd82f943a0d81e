"""The wait of a fetch for enough records. Knows no bytes.

A thousand idle consumers make some hundred waits a second: such a wait needs no task as long as
records and a deadline are all that it waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from braidlog.broker.runtime.steps import Steps, Wait, begin, run
from braidlog.protocols.kafka.context import KafkaContext
from braidlog.protocols.kafka.fields import ENTRIES_FEW_MAX
from braidlog.protocols.kafka.large_requests import large_requests

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition

# The longest wait that is answered although the client has closed its sending side.
HALF_CLOSED_WAIT_S = 30.0


class WaitingFetch(Protocol):
    """A fetch in progress."""

    def is_enough(self) -> bool:
        """Return True if the fetch should answer now."""

    def prepare_wait(self) -> bool:
        """Release resources that a long wait must not hold. Return True if `read_all` has to read
        again.
        """

    def awaited(self) -> Sequence[tuple[Partition, int]]:
        """Return the partitions, each with the offset that its high watermark has to exceed."""

    def read_all(self) -> Steps[None]:
        """Read what there is of every partition."""


def wait_for_records(context: KafkaContext, fetching: WaitingFetch, seconds: float) -> Steps[None]:
    """Read on until there is enough data, or until the timeout, a rebalance or a large request ends
    the wait.

    A client that closes its sending side meanwhile is answered if the wait is short. A client that
    is gone looks the same: a long wait would hold memory for it, and a group has to learn soon that
    its member is gone.
    """
    if seconds > HALF_CLOSED_WAIT_S or context.presence.is_used:
        yield from _wait(context, fetching, seconds)
    else:
        with context.connection.answer_half_closed():
            yield from _wait(context, fetching, seconds)


def _wait(context: KafkaContext, fetching: WaitingFetch, seconds: float) -> Steps[None]:
    """Wait without a task, unless the fetch is large or a read has to wait."""
    broker, polls, client = context.broker, context.groups.polls, context.client
    if fetching.prepare_wait():
        yield from fetching.read_all()
    deadline = polls.deadline(client, seconds)
    while not fetching.is_enough() and not broker.stopping.is_set():
        awaited = fetching.awaited()
        if len(awaited) > ENTRIES_FEW_MAX:
            yield _wait_in_task(context, fetching, deadline, None)
            return
        wait = broker.waiters.until(awaited, deadline)
        polls.park(client, wait)
        try:
            yield wait
        finally:
            polls.unpark(client, wait)
            wait.close()
        if wait.is_due:
            return
        deadline = wait.deadline
        rest = begin(fetching.read_all())
        if rest is not None:
            yield _wait_in_task(context, fetching, deadline, rest)
            return


async def _wait_in_task(
    context: KafkaContext, fetching: WaitingFetch, deadline: float, rest: Wait | None
) -> None:
    """Wait on, first for the rest of a read that has begun; the deadline also ends reads."""
    broker = context.broker
    with (
        large_requests().waiting_fetch(len(fetching.awaited())),
        context.groups.polls.waiting(context.client, deadline),
    ):
        if rest is not None:
            await rest
        while not fetching.is_enough() and not broker.stopping.is_set():
            await broker.wait_any(fetching.awaited())
            await run(fetching.read_all())
