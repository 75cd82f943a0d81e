"""`braidlog cluster`: create, show, check and clean up the shared store of a cluster.

Talks to PostgreSQL and the object store of the settings, never to a broker. Data goes to standard
output, everything else to standard error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from braidlog.broker.cli.confirming import Yes, confirm
from braidlog.broker.cli.failures import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, AdminError, failing
from braidlog.broker.cli.output import OutputOption
from braidlog.broker.cli.progress import Advance, progress
from braidlog.broker.cli.serving import set_flags

if TYPE_CHECKING:
    from braidlog.broker.config.settings import Config
    from braidlog.storage.shared.ledger import Ledger
    from braidlog.storage.shared.object_store import ObjectStore

SHARDS = 64
DRAIN_S = 60.0  # Time for the other brokers to take over all topics.
DRAIN_LOOK_S = 0.1

cluster = App(
    name="cluster",
    help="Make, show and check the shared store that the settings name (docs/cluster.md).",
)

ConfigOption = Annotated[str | None, Parameter(help="Settings, a TOML file.")]
SetOption = Annotated[
    list[str] | None, Parameter(name="--set", negative=(), help="KEY=VALUE. Repeatable.")
]


@cluster.command
def init(
    *,
    shards: Annotated[int, Parameter(help="Groups of topics; fixed for ever.")] = SHARDS,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Create the tables and the first object of a cluster. Does nothing if they exist.

    Example: braidlog cluster init --config cluster.toml
    """
    if not 1 <= shards <= 4096:
        raise AdminError("--shards: expected 1 to 4096", EXIT_USAGE)
    with _stores(config, set_) as (_, ledger, objects):
        from braidlog.storage.shared.making import make_cluster

        is_new, cluster = make_cluster(ledger, objects, shards)
        state = "made" if is_new else "was there"
        print(f"cluster {cluster.cluster_id}, {cluster.shards} shards: {state}")
        return EXIT_DONE


@cluster.command
def show(
    *, config: ConfigOption = None, set_: SetOption = None, output: OutputOption = "table"
) -> int:
    """Print the sessions and shards of the ledger.

    Example: braidlog cluster show --config cluster.toml
    """
    with _stores(config, set_) as (_, ledger, __):
        cluster = ledger.cluster()
        if cluster is None:
            raise AdminError("the database holds no cluster: run `braidlog cluster init`")
        sessions, shards = ledger.sessions(), ledger.shards()
        if output != "table":
            tree = {
                "cluster": asdict(cluster),
                "sessions": [asdict(row) | {"state": row.state.name.lower()} for row in sessions],
                "shards": [asdict(row) for row in shards],
            }
            print(json.dumps(tree, indent=2 if output == "json" else None))
            return EXIT_DONE
        print(f"cluster {cluster.cluster_id}, {cluster.shards} shards and the catalogue's")
        print(
            f"{'session':>8} {'node':>6} {'state':>7} {'round':>10} {'beat':>9} {'shards':>7}  owns"
        )
        for row in sessions:
            owned = [shard.shard for shard in shards if shard.session == row.session]
            if row.state.name != "LIVE" and row is not sessions[-1]:
                continue
            beat = f"{row.silent_ms / 1000:.1f} s"
            state = "drains" if row.drains else row.state.name.lower()
            print(
                f"{row.session:>8} {row.node:>6} {state:>7} {row.round:>10}"
                f" {beat:>9} {len(owned):>7}  {_ranges(owned)}"
            )
        free = sum(shard.session is None for shard in shards)
        print(f"{free} of {len(shards)} shards have no owner")
        return EXIT_DONE


@cluster.command
def drain(
    node: Annotated[int, Parameter(help="The broker's cluster.node_id.")],
    *,
    undo: Annotated[bool, Parameter(help="Let it own shards again.", negative="")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Move all topics of a broker to the other brokers, before the broker is stopped. Until then
    the broker still tells clients where topics are; a new start owns its share again.

    Example: braidlog cluster drain 2 --config cluster.toml
    """
    with _stores(config, set_) as (_, ledger, objects):
        from braidlog.storage.shared.proofs import prove

        prove(ledger, objects)
        if not ledger.drain(node, drains=not undo):
            raise AdminError(f"node {node} has no live session")
        if undo:
            return EXIT_DONE
        begun = time.monotonic()
        with progress(f"drain {node}", "shards") as advance:
            owned = await_drained(ledger, node, advance=advance)
        return report_drain(node, owned, time.monotonic() - begun)


def report_drain(node: int, owned: int, seconds: float) -> int:
    """Print how a drain ended, with the number of shards that the node still owns."""
    if owned:
        raise AdminError(f"node {node} still owns {owned} shards: is another one live?")
    print(f"node {node} owns nothing after {seconds:.1f} s")
    return EXIT_DONE


def await_drained(
    ledger: Ledger,
    node: int,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    advance: Advance = lambda done, total: None,
) -> int:
    """Return 0 once a node owns no shard; after `DRAIN_S` the number of shards that the node owns.

    Asks again within that time if the database does not answer. Raises LedgerUnanswered.
    """
    from braidlog.storage.shared.takeover import for_a_while, surely

    end_s = clock() + DRAIN_S
    patience = for_a_while(clock, sleep, seconds=DRAIN_S)
    most = 0
    while owned := surely(lambda: _owned_by(ledger, node), patience):
        most = max(most, owned)
        advance(most - owned, most)
        if clock() >= end_s:
            break
        sleep(DRAIN_LOOK_S)
    return owned


def _owned_by(ledger: Ledger, node: int) -> int:
    """Return the number of shards that a node owns, or that have no owner yet."""
    mine = {row.session for row in ledger.sessions() if row.node == node}
    return sum(row.session is None or row.session in mine for row in ledger.shards())


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as people write them: `0, 3-7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@cluster.command
def verify(
    *,
    deep: Annotated[bool, Parameter(help="Read every batch too.", negative="")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Check that every row has its object and every footer is good; exits with 1 if not.

    Beside running brokers, checks the ledger's state at the start of the command.

    Example: braidlog cluster verify --deep --config cluster.toml
    """
    with _stores(config, set_) as (_, ledger, objects):
        from braidlog.storage.shared.verifying import verify_store

        with progress("verify", "objects") as advance:
            report = verify_store(ledger, objects, print, deep=deep, advance=advance)
        print(
            f"{report.objects} objects, {report.partitions} partitions, {report.batches} batches:"
            f" {report.faults} faults; {report.unnamed} objects without a row"
        )
        return EXIT_FAILED if report.faults else EXIT_DONE


@cluster.command
def sweep(*, yes: Yes = False, config: ConfigOption = None, set_: SetOption = None) -> int:
    """Delete due objects in the trash, and objects that were stored but never published.

    Deletes nothing if the database is another cluster's, or older than the object store.

    Example: braidlog cluster sweep --config cluster.toml --yes
    """
    confirm("Delete the objects that no row of this database needs?", yes=yes)
    with _stores(config, set_) as (settings, ledger, objects):
        from braidlog.storage.shared.sweeper import Sweeper

        swept = Sweeper(ledger, objects, settings.shared.delete_after_ms).sweep()
        print(f"{swept.trash} objects of the trash and {swept.orphans} orphans deleted")
        return EXIT_DONE


@contextmanager
def _stores(
    config: str | None, set_: list[str] | None
) -> Iterator[tuple[Config, Ledger, ObjectStore]]:
    """Open the stores that the settings name. Raises AdminError, also for storage errors of the
    block.
    """
    from braidlog.broker.config.settings import ConfigError, load

    flags = [("storage.mode", "shared", "the settings of --config and --set")]
    try:
        with failing({EXIT_USAGE: ConfigError}):
            settings = load(file=config, flags=[*flags, *set_flags(set_ or ())])
            from braidlog.broker.cluster.join_cluster import stores
            from braidlog.storage.errors import StorageError

            ledger, objects = stores(settings)
    except ImportError as error:
        raise AdminError(f"this needs the extra `shared`: {error}") from error
    with failing({EXIT_FAILED: StorageError}), closing(ledger):
        yield settings, ledger, objects
