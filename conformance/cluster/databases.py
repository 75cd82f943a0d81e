"""Causes of a fault run: another cluster's database, and a database restored from a dump.

Brokers and commands must refuse both, and change nothing: the run's judge reads every acknowledged
record.
"""

import random
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg

from conformance.cluster.brokers import command
from conformance.cluster.running import GOES_ON_S, LOOK_S, Lost
from conformance.cluster.servers import KEYS, Postgres, postgres_folder
from conformance.server import RunningBroker

if TYPE_CHECKING:
    from conformance.cluster.brokers import ClusterBroker
    from conformance.cluster.running import RunningCluster

OTHER: Final = "other"  # Database of another cluster.
OLDER: Final = "older"  # Restored from a dump.
KEPT: Final = "kept"  # Name of the cluster's own database while a dump replaces it.
OTHER_NODE: Final = 9  # A broker that is configured with such a database.
# Time for clients to write after a dump. A session marks its rounds each second.
SINCE_S: Final = 3.0
REFUSED: Final = {OTHER: "is of cluster", OLDER: "the database is older than the object store"}


def another_database(
    cluster: "RunningCluster", broker: "ClusterBroker", rng: random.Random
) -> None:
    """Run commands and a broker with the database of another cluster."""
    if _create(cluster.postgres, OTHER):
        store = [setting for setting in cluster.settings if setting.startswith("shared.store=")]
        code, output = command([*_with(cluster, OTHER), f"{store[0]}-other"], "init")
        if code:
            raise Lost(f"another cluster was not made: {output}")
    _check_refused(cluster, broker, OTHER)


def restored_database(
    cluster: "RunningCluster", broker: "ClusterBroker", rng: random.Random
) -> None:
    """Run on an outdated dump: first beside the true database, then in the true
    database's place.
    """
    postgres = cluster.postgres
    _drop(postgres, OLDER)
    _create(postgres, OLDER)
    _copy(postgres, cluster.folder / "dump.sql")
    time.sleep(SINCE_S)
    _check_refused(cluster, broker, OLDER)
    name = _name(postgres)
    cluster.kill()
    _rename(postgres, name, KEPT)
    _rename(postgres, OLDER, name)
    try:
        for member in cluster.brokers:
            member.launch()
        for member in cluster.brokers:
            _await_refusal(member)
        code, output = command(cluster.settings, "sweep", "--yes")
        _check(code, output, OLDER, "sweep")
    finally:
        cluster.kill()
        _rename(postgres, name, OLDER)
        _rename(postgres, KEPT, name)


def _check_refused(cluster: "RunningCluster", broker: "ClusterBroker", database: str) -> None:
    """Check that commands and a broker refuse that database. Raises Lost."""
    settings = _with(cluster, database)
    for words in (["sweep", "--yes"], ["drain", str(broker.node)], ["verify"]):
        code, output = command(settings, *words)
        _check(code, output, database, " ".join(words))
    own = [*settings, f"cluster.node_id={OTHER_NODE}"]
    mistaken = RunningBroker(cluster.folder / f"node{OTHER_NODE}", settings=own, environment=KEYS)
    code, _, output = mistaken.run_to_end()
    _check(code, output, database, "serve")


def _check(code: int, output: str, database: str, doing: str) -> None:
    if code != 1 or REFUSED[database] not in output:
        raise Lost(f"{doing} with the {database} database ended with {code}: {output[-2000:]}")


def _await_refusal(broker: "ClusterBroker") -> None:
    deadline = time.monotonic() + GOES_ON_S
    while broker.is_running():
        if time.monotonic() > deadline:
            raise Lost(f"a broker runs on an older database: {broker.log_tail()}")
        time.sleep(LOOK_S)
    assert broker.process is not None
    _check(broker.process.returncode, broker.log_tail(), OLDER, f"node {broker.node}")


def _with(cluster: "RunningCluster", database: str) -> list[str]:
    """Return the cluster's settings with another database."""
    place = cluster.postgres.database.rpartition("/")[0]
    return [*cluster.settings, f"shared.database={place}/{database}"]


def _name(postgres: Postgres) -> str:
    return postgres.database.rpartition("/")[2]


def _connect(postgres: Postgres) -> psycopg.Connection:
    place = postgres.database.rpartition("/")[0]
    return psycopg.connect(f"{place}/template1", autocommit=True)


def _create(postgres: Postgres, name: str) -> bool:
    """Create a database; return False if the database exists."""
    with _connect(postgres) as connection:
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchall():
            return False
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return True


def _drop(postgres: Postgres, name: str) -> None:
    with _connect(postgres) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _rename(postgres: Postgres, old: str, new: str) -> None:
    """Rename a database; this ends every connection to the database."""
    with _connect(postgres) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [old]
        )
        connection.execute(f"ALTER DATABASE {old} RENAME TO {new}")


def _copy(postgres: Postgres, dump: Path) -> None:
    """Dump the cluster's present database, and restore the dump. Raises Lost."""
    programs = postgres_folder()
    assert programs is not None, "the run's PostgreSQL was started from there"
    older = postgres.database.rpartition("/")[0] + f"/{OLDER}"
    commands: list[list[str | Path]] = [
        [programs / "pg_dump", "--file", dump, postgres.database],
        [programs / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, older],
    ]
    for words in commands:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Lost(f"{words[0]}: {done.stderr}")
