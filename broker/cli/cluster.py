"""`braidlog cluster`: make the shared store of a cluster, look at it, check it, clean it up.

Talks to PostgreSQL and the object store of the settings, never to a broker. Data goes to standard
output, everything else to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from broker.config.settings import Config
    from storage.shared.ledger import Ledger
    from storage.shared.object_store import ObjectStore

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
SHARDS = 64

cluster = App(
    name="cluster",
    help="Make, show and check the shared store that the settings name (docs/cluster.md).",
)

ConfigOption = Annotated[str | None, Parameter(help="Settings, a TOML file.")]
SetOption = Annotated[
    list[str] | None, Parameter(name="--set", negative=(), help="KEY=VALUE. Repeatable.")
]
OutputOption = Annotated[Literal["table", "json"], Parameter(help="For people or for programs.")]
Work = Callable[["Config", "Ledger", "ObjectStore"], int]


@cluster.command
def init(
    *,
    shards: Annotated[int, Parameter(help="Groups of topics; fixed for ever.")] = SHARDS,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Make the tables and the first object of a cluster. Does nothing where they are there.

    Example: braidlog cluster init --config cluster.toml
    """
    if not 1 <= shards <= 4096:
        return _fail("--shards: 1 to 4096 are wanted", EXIT_USAGE)

    def work(_: Config, ledger: Ledger, objects: ObjectStore) -> int:
        from storage.shared.making import make_cluster

        made, found = make_cluster(ledger, objects, shards)
        print(
            f"cluster {found.cluster_id}, {found.shards} shards: {'made' if made else 'was there'}"
        )
        return EXIT_DONE

    return _with_stores(config, set_, work)


@cluster.command
def show(
    *, config: ConfigOption = None, set_: SetOption = None, output: OutputOption = "table"
) -> int:
    """Print sessions and shards as the ledger has them.

    Example: braidlog cluster show --config cluster.toml
    """

    def work(_: Config, ledger: Ledger, __: ObjectStore) -> int:
        found = ledger.cluster()
        if found is None:
            return _fail("the database holds no cluster: run `braidlog cluster init`", EXIT_FAILED)
        sessions, shards = ledger.sessions(), ledger.shards()
        if output == "json":
            tree = {
                "cluster": asdict(found),
                "sessions": [asdict(row) | {"state": row.state.name.lower()} for row in sessions],
                "shards": [asdict(row) for row in shards],
            }
            print(json.dumps(tree, indent=2))
            return EXIT_DONE
        print(f"cluster {found.cluster_id}, {found.shards} shards and the catalogue's")
        print(f"{'session':>8} {'node':>6} {'state':>7} {'round':>10} {'beat':>9} {'shards':>7}")
        for row in sessions:
            owned = sum(shard.session == row.session for shard in shards)
            if row.state.name != "LIVE" and row is not sessions[-1]:
                continue
            beat = f"{row.silent_ms / 1000:.1f} s"
            print(
                f"{row.session:>8} {row.node:>6} {row.state.name.lower():>7} {row.round:>10}"
                f" {beat:>9} {owned:>7}"
            )
        free = sum(shard.session is None for shard in shards)
        print(f"{free} of {len(shards)} shards have no owner")
        return EXIT_DONE

    return _with_stores(config, set_, work)


@cluster.command
def verify(
    *,
    deep: Annotated[bool, Parameter(help="Read every batch too.", negative="")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Check that every row has its object and every footer is good; exits with 1 where not.

    Beside running brokers it checks what the ledger said when it began.

    Example: braidlog cluster verify --deep --config cluster.toml
    """

    def work(_: Config, ledger: Ledger, objects: ObjectStore) -> int:
        from storage.shared.verifying import verify_store

        report = verify_store(ledger, objects, print, deep=deep)
        print(
            f"{report.objects} objects, {report.partitions} partitions, {report.batches} batches:"
            f" {report.faults} faults"
        )
        return EXIT_FAILED if report.faults else EXIT_DONE

    return _with_stores(config, set_, work)


@cluster.command
def sweep(*, config: ConfigOption = None, set_: SetOption = None) -> int:
    """Delete what is due in the trash, and objects that never came to count.

    Example: braidlog cluster sweep --config cluster.toml
    """

    def work(settings: Config, ledger: Ledger, objects: ObjectStore) -> int:
        from storage.shared.sweeper import Sweeper

        swept = Sweeper(ledger, objects, settings.shared.delete_after_ms).sweep()
        print(f"{swept.trash} objects of the trash and {swept.orphans} orphans deleted")
        return EXIT_DONE

    return _with_stores(config, set_, work)


def _with_stores(config: str | None, set_: list[str] | None, work: Work) -> int:
    """Do the work on the stores that the settings name."""
    from broker.config.settings import ConfigError, load

    try:
        flags = [("storage.mode", "shared", "braidlog cluster")]
        for text in set_ or ():
            key, equals, value = text.partition("=")
            if not equals:
                raise ConfigError(f"--set {text}: KEY=VALUE is wanted")
            flags.append((key.strip(), value.strip(), f"--set {text}"))
        settings = load(file=config, flags=flags)
        from broker.cluster.spare import stores
        from storage.errors import StorageError
        from storage.shared.making import NoCluster

        ledger, objects = stores(settings)
    except ConfigError as error:
        return _fail(str(error), EXIT_USAGE)
    except ImportError as error:
        return _fail(f"this needs the extra `shared`: {error}", EXIT_FAILED)
    try:
        return work(settings, ledger, objects)
    except (StorageError, NoCluster) as error:
        return _fail(str(error), EXIT_FAILED)
    finally:
        ledger.close()


def _fail(reason: str, code: int) -> int:
    print(f"braidlog: {' '.join(reason.split())}", file=sys.stderr)
    return code
