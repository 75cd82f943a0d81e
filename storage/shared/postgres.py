"""The ledger in PostgreSQL, by psycopg 3: a single connection under a lock, plain statements.

Every statement that counts begins by updating or locking the session's row, so that a fence and a
publication wait for each other; nothing else keeps two owners apart. A lost connection raises
`LedgerUnanswered` and the next call connects again. Needs the extra `shared`.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import tuple_row
from psycopg.types.json import Json

from braidlog.storage.shared import statements as sql
from braidlog.storage.shared.ledger import (
    FORMAT,
    Cluster,
    Contents,
    JournalRow,
    LedgerRefused,
    LedgerUnanswered,
    Owned,
    PackMove,
    PackRow,
    Publication,
    RoundRow,
    SegmentRow,
    SessionRow,
    SessionState,
    ShardRow,
    Tenure,
    check_format,
)

# An answer that takes longer counts as none: the connection is dropped and the caller finds out the
# outcome. Statements take milliseconds; a failover of PostgreSQL takes seconds.
CONNECT_S = 3
STATEMENT_MS = 10_000
# The server itself ends a statement first; this is for a server that hangs as a whole.
ANSWER_S = 12.0
READ_COMMITTED = r"-c default_transaction_isolation=read\ committed"
READ_ONLY = "-c default_transaction_read_only=on"

# The kernel drops a connection whose peer acknowledges nothing for this long.
UNACKNOWLEDGED_MS = 5_000

# Errors that another try may not meet: lost connections, timeouts, a standby that is not primary
# yet, and another statement that came first.
UNANSWERED = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.UniqueViolation,
)

T = TypeVar("T")


class PostgresConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits at most `answer_s` for an answer, and is closed then."""

    answer_s = ANSWER_S

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """As psycopg's. Raises psycopg.OperationalError if no answer comes."""
        try:
            return super().wait(gen, interval, self.answer_s if timeout is None else timeout)
        except psycopg.OperationalError:
            if timeout is None:
                self.close()  # Its statement may still run: do not use the connection again.
            raise


class PostgresLedger:
    """The tables of a cluster. The constructor does not connect; every call connects if needed.
    Implements `Ledger`.
    """

    def __init__(self, database: str, *, read_only: bool = False) -> None:
        """`database` is a connection string or URL of libpq; passwords come from this string, from
        `PGPASSWORD` or from a password file. `read_only`: PostgreSQL refuses every change, and the
        role needs no right to change, nor to see the brokers' secret.
        """
        self._database = database
        self._read_only = read_only
        self._connection: PostgresConnection | None = None
        self._listens = False
        self._lock = threading.Lock()

    @contextmanager
    def _transaction(self) -> Iterator[PostgresConnection]:
        """Run several statements in a transaction. Raises LedgerUnanswered, LedgerRefused."""
        with self._asking() as connection, connection.transaction():
            yield connection

    @contextmanager
    def _asking(self) -> Iterator[PostgresConnection]:
        """Use the connection. Raises LedgerUnanswered, LedgerRefused."""
        with self._lock:
            try:
                yield self._connected()
            except UNANSWERED as error:
                self._drop()
                raise LedgerUnanswered(f"PostgreSQL: {_one_line(error)}") from error
            except psycopg.Error as error:
                self._drop()
                raise LedgerRefused(f"PostgreSQL: {_one_line(error)}") from error

    def _connected(self) -> PostgresConnection:
        if self._connection is None or self._connection.closed:
            self._connection = PostgresConnection.connect(
                self._database,
                autocommit=True,
                row_factory=tuple_row,
                connect_timeout=CONNECT_S,
                options=self._options(),
                keepalives_idle=2,
                keepalives_interval=1,
                keepalives_count=3,
                tcp_user_timeout=UNACKNOWLEDGED_MS,
                application_name="braidlog",
            )
        return self._connection

    def _options(self) -> str:
        options = f"-c statement_timeout={STATEMENT_MS} {READ_COMMITTED}"
        return f"{options} {READ_ONLY}" if self._read_only else options

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._listens = False
        if connection is not None:
            connection.close()

    def _rows(self, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of a statement in its own transaction: a single round trip."""
        with self._asking() as connection:
            return connection.execute(statement, parameters).fetchall()

    def _number(self, statement: str, **parameters: object) -> int:
        """The number that a statement answers with."""
        rows = self._rows(statement, **parameters)
        return int(rows[0][0])

    # The cluster.

    def cluster(self) -> Cluster | None:
        """Return the cluster of this ledger. Raises LedgerRefused for a cluster of
        another format.
        """
        rows = self._rows("SELECT to_regclass('cluster')::text")
        if rows[0][0] is None:
            return None
        formats = self._rows("SELECT format FROM cluster")
        if not formats:
            return None
        check_format(formats[0][0])
        columns = "id, format, shards" if self._read_only else "id, format, shards, secret"
        return Cluster(*self._rows(f"SELECT {columns} FROM cluster")[0])

    def init(self, cluster: Cluster) -> bool:
        with self._transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(4207849484)")
            connection.execute(sql.TABLES)
            if connection.execute("SELECT FROM cluster").fetchall():
                return False
            values = (cluster.cluster_id, cluster.format, cluster.shards, cluster.secret)
            connection.execute("INSERT INTO cluster VALUES (%s, %s, %s, %s)", values)
            connection.execute(
                "INSERT INTO shards SELECT n, 0, NULL FROM generate_series(0, %s) n",
                (cluster.shards,),
            )
            return True

    def upgrade(self, node: int, silent_ms: int) -> bool:
        """Raise the format, unless another node's session is live."""
        return bool(self._rows(sql.UPGRADE, node=node, silent_ms=silent_ms, format=FORMAT))

    # Sessions.

    def join(self, node: int, listeners: dict[str, str]) -> int:
        with self._transaction() as connection:
            older = connection.execute(sql.FENCE_NODE, {"node": node}).fetchall()
            for session, round_ in older:
                _free(connection, session, round_)
            row = connection.execute(
                sql.JOIN, {"node": node, "listeners": Json(listeners)}
            ).fetchone()
            assert row is not None
            return int(row[0])

    def beat(self, session: int, *, store_ok: bool) -> tuple[SessionState, int]:
        rows = self._rows(sql.BEAT, s=session, store_ok=store_ok)
        return (SessionState.LIVE, int(rows[0][0])) if rows else self.session_state(session)

    def session_state(self, session: int) -> tuple[SessionState, int]:
        rows = self._rows(sql.SESSION_STATE, s=session)
        return (SessionState(rows[0][0]), rows[0][1]) if rows else (SessionState.FENCED, -1)

    def sessions(self) -> list[SessionRow]:
        return [
            SessionRow(session, node, SessionState(state), *rest)
            for session, node, state, *rest in self._rows(sql.SESSIONS)
        ]

    def set_listeners(self, session: int, listeners: dict[str, str]) -> None:
        """Say where a live session's listeners are."""
        self._rows(sql.SET_LISTENERS, s=session, listeners=Json(listeners))

    def drain(self, node: int, *, drains: bool) -> bool:
        return bool(self._rows(sql.DRAIN, node=node, drains=drains))

    def fence(self, session: int, silent_ms: int) -> bool:
        return self._end(sql.FENCE, {"x": session, "lease": silent_ms}, session)

    def leave(self, session: int) -> bool:
        return self._end(sql.LEAVE, {"x": session}, session)

    def _end(self, statement: str, parameters: dict[str, int], session: int) -> bool:
        with self._transaction() as connection:
            row = connection.execute(statement, parameters).fetchone()
            if row is None:
                return False
            _free(connection, session, row[0])
            return True

    # Shards.

    def shards(self) -> list[ShardRow]:
        rows = self._rows("SELECT shard, epoch, session FROM shards ORDER BY shard")
        return [ShardRow(*row) for row in rows]

    def take(self, session: int, wanted: Sequence[int]) -> dict[int, int]:
        with self._transaction() as connection:
            row = connection.execute(sql.LIVE, {"s": session}).fetchone()
            if row is None:
                return {}
            parameters = {"s": session, "wanted": list(wanted), "round": row[0]}
            return dict(connection.execute(sql.TAKE, parameters).fetchall())

    def release(self, owned: Owned) -> bool:
        return self._number(sql.RELEASE, **_own(owned)) == 1

    def publish(self, publication: Publication) -> bool:
        rows, snapshots = publication.rows, publication.snapshots
        return (
            self._number(
                sql.PUBLISH,
                s=publication.session,
                hi=publication.round,
                parts=list(publication.parts),
                footers=list(publication.footers),
                snap_shards=[snapshot[0] for snapshot in snapshots],
                snap_kinds=[snapshot[1] for snapshot in snapshots],
                snap_firsts=[snapshot[2] for snapshot in snapshots],
                shards=[row.shard for row in rows],
                places=[row.place for row in rows],
                kinds=[row.kind for row in rows],
                bodies=[row.body for row in rows],
                news=publication.news,
            )
            == 1
        )

    def contents(self, shards: Sequence[int]) -> Contents:
        with self._transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

            def rows(statement: str) -> list[tuple[Any, ...]]:
                return connection.execute(statement, {"wanted": list(shards)}).fetchall()

            return Contents(
                [Tenure(*row) for row in rows(sql.TENURES)],
                [RoundRow(a, b, tuple(c), tuple(d)) for a, b, c, d in rows(sql.UNPACKED_ROUNDS)],
                [PackRow(*row) for row in rows(sql.PACKS)],
                [SegmentRow(*row) for row in rows(sql.SEGMENTS)],
                {partition: (shard, start) for partition, shard, start in rows(sql.STARTS)},
            )

    def journal(self, shard: int, kind: int, after: int = 0) -> list[JournalRow]:
        rows = self._rows(sql.JOURNAL, h=shard, kind=kind, after=after)
        return [JournalRow(shard, place, kind, bytes(body)) for place, kind, body in rows]

    def await_news(self, timeout_s: float) -> None:
        """Return when another broker has announced news, or after that time."""

        with self._lock:
            try:
                connection = self._connected()
                if not self._listens:
                    connection.execute("LISTEN braidlog_news")
                    self._listens = True
                for _ in connection.notifies(timeout=timeout_s, stop_after=1):
                    pass
            except psycopg.Error as error:
                self._drop()
                raise LedgerUnanswered(f"PostgreSQL: {_one_line(error)}") from error

    # Changes by an owner besides rounds.

    def add_packs(self, owned: Owned, moves: Sequence[PackMove], packs: Sequence[PackRow]) -> bool:
        done = self._number(
            sql.ADD_PACKS,
            **_own(owned),
            epochs=[move.epoch for move in moves],
            olds=[move.old for move in moves],
            news=[move.new for move in moves],
            packs=[pack.pack for pack in packs],
            bytes=[pack.size for pack in packs],
            indexes=[pack.index for pack in packs],
        )
        return done == 1

    def add_segment(
        self, owned: Owned, segment: SegmentRow, packs: Sequence[int], after_ms: int
    ) -> bool:
        done = self._number(
            sql.ADD_SEGMENT,
            **_own(owned),
            partition=segment.partition_id,
            base=segment.base,
            gen=segment.generation,
            end=segment.end_offset,
            bytes=segment.size,
            index_bytes=segment.index_bytes,
            last_us=segment.last_append_us,
            max_us=segment.max_time_us,
            packs=list(packs),
            after=after_ms,
        )
        return done == 1

    def set_start(
        self,
        owned: Owned,
        partition: tuple[int, int, int],
        packs: Sequence[int],
        after_ms: int,
    ) -> bool:
        number, old, new = partition
        done = self._number(
            sql.SET_START,
            **_own(owned),
            partition=number,
            old=old,
            new=new,
            packs=list(packs),
            after=after_ms,
        )
        return done == 1

    def drop_partitions(
        self, owned: Owned, partitions: Sequence[int], packs: Sequence[int], after_ms: int
    ) -> bool:
        done = self._number(
            sql.DROP_PARTITIONS,
            **_own(owned),
            partitions=list(partitions),
            packs=list(packs),
            after=after_ms,
        )
        return done == 1

    # Cleaning.

    def trash_rounds(self, after_ms: int) -> int:
        count = self._number(sql.TRASH_ROUNDS, after=after_ms)
        self._rows(sql.DROP_TENURES)
        return count

    def due_trash(self, count_max: int) -> list[str]:
        return [row[0] for row in self._rows(sql.DUE_TRASH, count=count_max)]

    def drop_trash(self, objects: Sequence[str]) -> None:
        self._rows(sql.DROP_TRASH, objects=list(objects))

    def trash(self) -> set[str]:
        return {row[0] for row in self._rows("SELECT object FROM trash")}

    def close(self) -> None:
        with self._lock:
            self._drop()


def _free(connection: PostgresConnection, session: int, round_: int) -> None:
    """Free the shards of a session that was just ended, in its transaction."""
    connection.execute(sql.END_TENURES, {"x": session, "round": round_})
    connection.execute(sql.FREE_SHARDS, {"x": session})


def _own(owned: Owned) -> dict[str, int]:
    return {"s": owned.session, "h": owned.shard, "e": owned.epoch}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
