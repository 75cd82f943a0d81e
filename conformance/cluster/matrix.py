"""Three brokers over a shared store for the matrix, with each protocol at another broker.

So most topics are owned by another broker than the client's.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from conformance.cluster import servers
from conformance.cluster.running import RunningCluster

NODE_OF = {"kafka": 0, "pulsar": 1, "iggy": 2, "http": 0}


class ClusterUnavailable(Exception):
    """This machine lacks a part of a cluster; the text names the part."""


def is_for_several(case: ModuleType) -> bool:
    """Return True if a case can use several brokers: its own frames would not look for a topic's
    owner.
    """
    wires = ("KafkaWire", "PulsarWire", "IggyWire", "HttpPlace")
    return not any(name in vars(case) for name in wires)


@contextmanager
def three_brokers() -> Iterator[dict[str, str]]:
    """Yield an address for each listener. Raises ClusterUnavailable."""
    reason = servers.missing()
    if reason is not None:
        raise ClusterUnavailable(reason)
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-matrix-") as scratch,
        RunningCluster(Path(scratch), settings=(), cuts=False) as cluster,
    ):
        cluster.await_all()
        yield {name: cluster.addresses(name)[node] for name, node in NODE_OF.items()}
