"""Three brokers over one shared store as the matrix asks them: each protocol at another one, so
that most topics are owned elsewhere than where a client knocks.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from conformance.cluster import servers
from conformance.cluster.running import Cluster

NODE_OF = {"kafka": 0, "pulsar": 1, "iggy": 2, "http": 0}


class NoCluster(Exception):
    """What a cluster needs is not on this machine; the text says what."""


def is_for_several(case: ModuleType) -> bool:
    """Whether a case can be asked of several brokers: not with frames of its own, which do not look
    for a topic's owner.
    """
    wires = ("KafkaWire", "PulsarWire", "IggyWire", "HttpPlace")
    return not any(name in vars(case) for name in wires)


@contextmanager
def three_brokers() -> Iterator[dict[str, str]]:
    """An address for each listener. Raises NoCluster."""
    reason = servers.missing()
    if reason is not None:
        raise NoCluster(reason)
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-matrix-") as scratch,
        Cluster(Path(scratch), settings=(), cuts=False) as cluster,
    ):
        cluster.await_all()
        yield {name: cluster.addresses(name)[node] for name, node in NODE_OF.items()}
