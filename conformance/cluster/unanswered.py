"""Lost answers between real brokers: a client asks a broker that is not the owner for a change; the
owner does the work, and a proxy on loopback cuts the link before the answer passes.

`python -m conformance.cluster.unanswered` makes each change twice, on topics of equal state: once
with every answer, and once with the owner's answer lost. The answer to the client must be true:
done, not done or unknown. After an unknown outcome the client asks again, which must do no harm:
only an append without sequence numbers may be stored twice, and a step (one partition more) is
another step.
"""

import argparse
import re
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from braidlog.storage.shared.layout import shard_of
from conformance.clients.raw.iggy import NEVER, IggyWire, text8
from conformance.cluster import servers
from conformance.cluster.brokers import ClusterBroker
from conformance.cluster.faults import SHARDS
from conformance.cluster.proxies import BROKERS, Proxies
from conformance.cluster.running import GOES_ON_S, LOOK_S, QUICK, Lost, RunningCluster
from conformance.cluster.unanswered_changes import CHANGES, CREATE_TOKEN, GROUP, OTHER_GROUP
from conformance.cluster.unanswered_http import PARTITIONS, by_http
from conformance.cluster.unanswered_kinds import ANSWER_S, Change, ChangeOutcome, Near, named
from conformance.ending import end_on_signals

CATALOGUE_SHARD: Final = 0
RECORDS: Final = 3  # In each topic before its change.
NAMES_MAX: Final = 10_000
# Times and numbers of objects; tokens of other changes.
MOVING: Final = re.compile(r"\b\d{8,}\b|\"\w*id\": ?\d+|\d+-\d+-\d+T[\d:.]+Z?")
OTHERS: Final = re.compile(r'\{"name":"x?unanswered\d+"[^{}]*\},?')
SETTLED_S: Final = 7.0  # Without a move: a broker that joins takes its share after two leases.

State = Mapping[str, Any] | None  # None: there is no topic of that name.


@dataclass(frozen=True, slots=True)
class Roles:
    """Three brokers: `near` is asked, and owns neither the catalogue nor most topics."""

    near: ClusterBroker
    catalogue: ClusterBroker
    other: ClusterBroker


class UnansweredRun:
    """All changes, one after the other."""

    def __init__(self, cluster: RunningCluster, proxies: Proxies) -> None:
        self._cluster = cluster
        self._proxies = proxies
        self._names = iter(range(NAMES_MAX))
        owner = settled_owners(cluster)[CATALOGUE_SHARD]
        near, other = (broker for broker in cluster.brokers if broker.node != owner)
        self._roles = Roles(near, cluster.brokers[owner - 1], other)
        self.outcomes: dict[str, ChangeOutcome] = {}
        with IggyWire(near.address("iggy")) as wire:  # Makes a user of the client's name.
            wire.ok(CREATE_TOKEN, text8("first") + struct.pack("<Q", NEVER))

    def faults(self, names: Sequence[str]) -> Iterator[str]:
        """Make these changes; yield all faults."""
        for name in names:
            try:
                self._check(name, CHANGES[name])
            except AssertionError as error:
                yield f"{name}: {error}"

    def _check(self, name: str, change: Change) -> None:
        near: Near = {
            listener: self._roles.near.address(listener) for listener in self._roles.near.addresses
        }
        whole, cut = self._topic(change, near), self._topic(change, near)
        before = self._state(change, whole)
        now = self._state(change, cut)
        assert now == before, f"the topics differ before the change: {before}, {now}"
        assert change.make(near, whole) is ChangeOutcome.DONE, (
            "the change is refused with every answer"
        )
        after = self._state(change, whole)
        assert after != before, "the change changes nothing"
        answering = self._roles.other if change.over_topic else self._roles.catalogue
        self._proxies.lose_answer(f"{BROKERS}{answering.node}")
        answer = self.outcomes[name] = change.make(near, cut)
        has_lost = self._proxies.has_lost
        self._proxies.lose_answer(None)
        assert has_lost, "no answer was lost"
        now = self._state(change, cut)
        allowed = {
            ChangeOutcome.DONE: [after],
            ChangeOutcome.NOT_DONE: [before],
            ChangeOutcome.UNKNOWN: [before, after],
        }
        assert now in allowed[answer], f"the client was told {answer.value}: {before}, now {now}"
        if answer is ChangeOutcome.UNKNOWN and not change.is_step:
            self._check_repeat(change, near, cut, (now, after))

    def _check_repeat(
        self, change: Change, near: Near, topic: str, states: tuple[State, State]
    ) -> None:
        """Ask again after an unknown outcome. `states`: now, and after the change."""
        now, after = states
        change.make(near, topic)
        repeated = self._state(change, topic)
        if change.appends and now == after:
            assert repeated is not None and now is not None
            ends = [sum(state["ends"]) for state in (repeated, now)]
            assert ends[0] in (ends[1], ends[1] + 1), f"a repeat stored {ends[0] - ends[1]} more"
        else:
            assert repeated == after, f"a repeat made {repeated} of {now}"

    def _topic(self, change: Change, near: Near) -> str:
        """Create a topic, with the same state for each change; only a name for a creation."""
        near_node = self._roles.near.node
        owner = self._roles.near if change.at_near else self._roles.other
        owners = self._cluster.owners()
        topic = next(
            topic
            for topic in (f"unanswered{number}" for number in self._names)
            if all(
                owners.get(shard_of(f"public/{space}/{topic}", SHARDS)) == owner.node
                for space in ("default", topic)
            )
            and (not change.coordinates or owners.get(shard_of(topic, SHARDS)) == near_node)
        )
        if not change.creates:
            with IggyWire(owner.address("iggy")) as wire:
                wire.create_topic(topic, partitions=PARTITIONS)
                wire.send_messages(topic, [(0, [], b"x")] * RECORDS)
                wire.create_group(topic, OTHER_GROUP)
                wire.store_offset(topic, GROUP, 0)
        for request in change.prepares:
            assert by_http(*request, near, topic) is ChangeOutcome.DONE, f"{request} is refused"
        return topic

    def _state(self, change: Change, topic: str) -> State:
        """The state that the change may change, as another broker shows it."""
        looks = {path: self._look(named(path, topic), topic) for path in change.looks}
        description = self._shown(f"topics/public/default/{topic}")
        if description is None:
            return looks or None
        groups = [group["group"] for group in description["groups"]]
        shown = {group: self._shown(f"groups/public/default/{topic}/{group}") for group in groups}
        with IggyWire(self._roles.other.address("iggy")) as wire:
            iggy_groups = wire.groups_of(topic)
        return {
            "partitions": len(description["partitions"]),
            "settings": description["settings"],
            "starts": [partition["log_start_offset"] for partition in description["partitions"]],
            "ends": [partition["log_end_offset"] for partition in description["partitions"]],
            "positions": {
                name.replace(topic, "NAME"): [
                    partition["position"] for partition in group["partitions"]
                ]
                for name, group in shown.items()
                if group is not None
            },
            "groups": iggy_groups,
            **looks,
        }

    def _look(self, path: str, topic: str) -> str:
        """Return the answer to GET for a path, without names, times and numbers of objects."""
        host, port = self._roles.other.address("http")
        answer = httpx.get(f"http://{host}:{port}{path}", timeout=ANSWER_S, trust_env=False)
        text = OTHERS.sub("", answer.text.replace(topic, "NAME")).replace(",]", "]")
        return f"{answer.status_code} {MOVING.sub('N', text) if answer.is_success else ''}"

    def _shown(self, path: str) -> Any:
        host, port = self._roles.other.address("http")
        url = f"http://{host}:{port}/api/v1/{path}"
        answer = httpx.get(url, timeout=ANSWER_S, trust_env=False)
        return None if answer.status_code == 404 else answer.raise_for_status().json()


def settled_owners(cluster: RunningCluster) -> Mapping[int, int]:
    """Return the owner of each shard, once no more shards move to new brokers. Raises Lost."""
    deadline, seen, since = time.monotonic() + GOES_ON_S, cluster.owners(), time.monotonic()
    while len(set(seen.values())) < len(cluster.brokers) or time.monotonic() < since + SETTLED_S:
        if time.monotonic() > deadline:
            raise Lost(f"topics move and move: {cluster.tails()}")
        time.sleep(LOOK_S)
        if (now := cluster.owners()) != seen:
            seen, since = now, time.monotonic()
    return seen


def run(folder: Path, names: Sequence[str]) -> tuple[Mapping[str, ChangeOutcome], list[str]]:
    """Return the answer to each change after a lost answer, and all faults. Raises Lost."""
    with RunningCluster(folder, QUICK, namespaces=False) as cluster:
        cluster.await_all()
        assert isinstance(cluster.network, Proxies)
        unanswered = UnansweredRun(cluster, cluster.network)
        faults = list(unanswered.faults(names))
        return unanswered.outcomes, faults


def main() -> int:
    """Exit code 1 after an answer that is not true."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.cluster.unanswered",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="changes, with commas between them")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or list(CHANGES)
    unknown = [name for name in names if name not in CHANGES]
    reason = servers.missing() or (unknown and f"{unknown}: there are {', '.join(CHANGES)}")
    if reason:
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="braidlog-unanswered-") as scratch:
        try:
            outcomes, faults = run(Path(scratch), names)
        except Lost as lost:
            print(lost, file=sys.stderr)
            return 1
    for name, outcome in outcomes.items():
        print(f"{name}: the client was told: {outcome.value}")
    for fault in faults:
        print(f"* {fault}")
    print(f"{len(outcomes)} changes whose answer was lost, {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
