"""The tables and statements of the ledger, in PostgreSQL's SQL. Text alone.

Every statement that counts begins with the session's row: the statement checks `state = 1` under
the row's lock, and a fence changes the row, so that either the statement or the fence comes first.
Array parameters are cast to their columns' types.
"""

TABLES = """
CREATE TABLE IF NOT EXISTS cluster(
  id text NOT NULL, format int NOT NULL, shards int NOT NULL, secret text NOT NULL);
CREATE TABLE IF NOT EXISTS sessions(
  session bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, node int NOT NULL,
  state smallint NOT NULL, round bigint NOT NULL DEFAULT 0, beat timestamptz NOT NULL,
  store_ok timestamptz, doors jsonb NOT NULL, drains boolean NOT NULL DEFAULT false,
  joined timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE UNIQUE INDEX IF NOT EXISTS sessions_live ON sessions(node) WHERE state = 1;
CREATE TABLE IF NOT EXISTS shards(
  shard int PRIMARY KEY, epoch bigint NOT NULL, session bigint);
CREATE TABLE IF NOT EXISTS tenures(
  shard int, epoch bigint, session bigint NOT NULL, from_round bigint NOT NULL, to_round bigint,
  packed_round bigint NOT NULL, PRIMARY KEY (shard, epoch));
CREATE INDEX IF NOT EXISTS tenures_session ON tenures(session);
CREATE TABLE IF NOT EXISTS rounds(
  session bigint, round bigint, parts int[] NOT NULL, footers int[] NOT NULL,
  PRIMARY KEY (session, round));
CREATE TABLE IF NOT EXISTS journal(
  shard int, place bigint, kind smallint, body bytea NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS journal_place ON journal(shard, (kind % 16), place);
CREATE TABLE IF NOT EXISTS packs(
  shard int, pack bigint, epoch bigint NOT NULL, bytes bigint NOT NULL, index bytea NOT NULL,
  PRIMARY KEY (shard, pack));
CREATE TABLE IF NOT EXISTS segments(
  partition bigint, base bigint, shard int NOT NULL, epoch bigint NOT NULL, gen int NOT NULL,
  end_offset bigint NOT NULL, bytes bigint NOT NULL, index_bytes int NOT NULL,
  last_append_us bigint NOT NULL, max_time_us bigint, PRIMARY KEY (partition, base));
CREATE INDEX IF NOT EXISTS segments_shard ON segments(shard);
CREATE TABLE IF NOT EXISTS starts(
  partition bigint PRIMARY KEY, shard int NOT NULL, log_start bigint NOT NULL);
CREATE TABLE IF NOT EXISTS trash(object text PRIMARY KEY, due timestamptz NOT NULL);
"""

# Sessions.

UPGRADE = """
UPDATE cluster SET format = %(format)s WHERE format = %(format)s OR NOT EXISTS
 (SELECT FROM sessions WHERE state = 1 AND node <> %(node)s
  AND beat > clock_timestamp() - %(silent_ms)s * interval '1 millisecond') RETURNING format
"""
FENCE_NODE = """
UPDATE sessions SET state = 3 WHERE node = %(node)s AND state = 1 RETURNING session, round
"""
JOIN = """
INSERT INTO sessions(node, state, beat, doors)
 VALUES (%(node)s, 1, clock_timestamp(), %(listeners)s) RETURNING session
"""
BEAT = """
UPDATE sessions SET beat = clock_timestamp(),
 store_ok = CASE WHEN %(store_ok)s THEN clock_timestamp() ELSE store_ok END
 WHERE session = %(s)s AND state = 1 RETURNING round
"""
SET_LISTENERS = """
UPDATE sessions SET doors = %(listeners)s WHERE session = %(s)s AND state = 1 RETURNING session
"""
DRAIN = """
UPDATE sessions SET drains = %(drains)s WHERE node = %(node)s AND state = 1
 RETURNING pg_notify('braidlog_news', '')::text
"""
SESSION_STATE = "SELECT state, round FROM sessions WHERE session = %(s)s FOR UPDATE"
SESSIONS = """
SELECT session, node, state, round,
 (extract(epoch FROM clock_timestamp() - beat) * 1000)::bigint,
 (extract(epoch FROM clock_timestamp() - store_ok) * 1000)::bigint, doors, drains,
 (extract(epoch FROM clock_timestamp() - joined) * 1000)::bigint
 FROM sessions ORDER BY session
"""
FENCE = """
UPDATE sessions SET state = 3 WHERE session = %(x)s AND state = 1
 AND (beat < clock_timestamp() - %(lease)s * interval '1 millisecond'
 OR beat > clock_timestamp()) RETURNING round
"""
LEAVE = "UPDATE sessions SET state = 2 WHERE session = %(x)s AND state = 1 RETURNING round"
END_TENURES = "UPDATE tenures SET to_round = %(round)s WHERE session = %(x)s AND to_round IS NULL"
FREE_SHARDS = """
WITH f AS (UPDATE shards SET session = NULL WHERE session = %(x)s)
 SELECT pg_notify('braidlog_news', '')::text
"""
LIVE = "SELECT round FROM sessions WHERE session = %(s)s AND state = 1 FOR UPDATE"
TAKE = """
WITH w AS (SELECT shard FROM shards WHERE shard = ANY(%(wanted)s::int[]) ORDER BY shard FOR UPDATE),
 h AS (UPDATE shards SET session = %(s)s, epoch = epoch + 1
 WHERE shard IN (SELECT shard FROM w) AND session IS NULL RETURNING shard, epoch)
 INSERT INTO tenures SELECT shard, epoch, %(s)s, %(round)s, NULL, %(round)s FROM h
 RETURNING shard, epoch
"""

# Rounds.

PUBLISH = """
WITH me AS (UPDATE sessions SET round = %(hi)s, beat = clock_timestamp()
 WHERE session = %(s)s AND round = %(hi)s - 1 AND state = 1 RETURNING session),
 r AS (INSERT INTO rounds SELECT session, %(hi)s, %(parts)s::int[], %(footers)s::int[] FROM me),
 d AS (DELETE FROM journal g USING me,
 unnest(%(snap_shards)s::int[], %(snap_kinds)s::smallint[], %(snap_firsts)s::bigint[])
 u(shard, kind, first)
 WHERE g.shard = u.shard AND g.kind %% 16 = u.kind AND g.place < u.first),
 j AS (INSERT INTO journal SELECT u.* FROM me,
 unnest(%(shards)s::int[], %(places)s::bigint[], %(kinds)s::smallint[], %(bodies)s::bytea[]) u)
 SELECT count(*), count(CASE WHEN %(news)s THEN pg_notify('braidlog_news', '')::text END)
 FROM me
"""

# Changes by an owner besides rounds.

OWN = """
WITH me AS (SELECT session, round FROM sessions WHERE session = %(s)s AND state = 1 FOR UPDATE),
 mine AS (SELECT h.shard, h.epoch, me.round FROM shards h JOIN me USING (session)
 WHERE h.shard = %(h)s AND h.epoch = %(e)s FOR UPDATE OF h),
"""
GONE = """
 k AS (DELETE FROM packs USING ok WHERE shard = %(h)s AND pack = ANY(%(packs)s::bigint[])
 RETURNING format('packs/%%s/%%s-%%s', shard, epoch, pack) AS object),
"""
SEGMENT_NAME = (
    "format('segments/%%s/%%s-%%s-%%s', partition, lpad(base::text, 20, '0'), epoch, gen)"
)
DUE = "now() + %(after)s * interval '1 millisecond'"

RELEASE = (
    OWN
    + """
 t AS (UPDATE tenures n SET to_round = mine.round FROM mine
 WHERE (n.shard, n.epoch) = (mine.shard, mine.epoch)),
 f AS (UPDATE shards h SET session = NULL FROM mine WHERE h.shard = mine.shard)
 SELECT count(*), count(pg_notify('braidlog_news', '')::text) FROM mine
"""
)
ADD_PACKS = (
    OWN
    + """
 t AS (SELECT n.shard, n.epoch, u.new FROM mine, tenures n,
 unnest(%(epochs)s::bigint[], %(olds)s::bigint[], %(news)s::bigint[]) u(epoch, old, new)
 WHERE (n.shard, n.epoch, n.packed_round) = (mine.shard, u.epoch, u.old) FOR UPDATE OF n),
 ok AS (SELECT FROM t HAVING count(*) = cardinality(%(epochs)s::bigint[])),
 w AS (UPDATE tenures n SET packed_round = t.new FROM t, ok
 WHERE (n.shard, n.epoch) = (t.shard, t.epoch)),
 p AS (INSERT INTO packs SELECT %(h)s, u.pack, %(e)s, u.bytes, u.index FROM ok,
 unnest(%(packs)s::bigint[], %(bytes)s::bigint[], %(indexes)s::bytea[]) u(pack, bytes, index))
 SELECT count(*) FROM ok
"""
)
ADD_SEGMENT = f"""{OWN}
 ok AS (INSERT INTO segments SELECT %(partition)s, %(base)s, shard, epoch, %(gen)s, %(end)s,
 %(bytes)s, %(index_bytes)s, %(last_us)s, %(max_us)s::bigint
 FROM mine WHERE NOT EXISTS
 (SELECT FROM starts WHERE partition = %(partition)s AND log_start >= %(end)s)
 ON CONFLICT DO NOTHING RETURNING 1), {GONE}
 x AS (INSERT INTO trash SELECT object, {DUE} FROM k ON CONFLICT DO NOTHING) SELECT count(*) FROM ok
"""
SET_START = f"""{OWN}
 ok AS (INSERT INTO starts SELECT %(partition)s, shard, %(new)s FROM mine
 WHERE %(old)s = 0 OR EXISTS (SELECT FROM starts WHERE partition = %(partition)s)
 ON CONFLICT (partition)
 DO UPDATE SET log_start = excluded.log_start WHERE starts.log_start = %(old)s RETURNING 1),
 g AS (DELETE FROM segments USING ok WHERE partition = %(partition)s AND end_offset <= %(new)s
 RETURNING {SEGMENT_NAME} AS object), {GONE}
 x AS (INSERT INTO trash SELECT object, {DUE} FROM (TABLE g UNION ALL TABLE k) o
 ON CONFLICT DO NOTHING)
 SELECT count(*) FROM ok
"""
DROP_PARTITIONS = f"""{OWN}
 ok AS (SELECT 1 FROM mine),
 b AS (DELETE FROM starts USING ok WHERE partition = ANY(%(partitions)s::bigint[])),
 g AS (DELETE FROM segments USING ok WHERE partition = ANY(%(partitions)s::bigint[])
 RETURNING {SEGMENT_NAME} AS object), {GONE}
 x AS (INSERT INTO trash SELECT object, {DUE} FROM (TABLE g UNION ALL TABLE k) o
 ON CONFLICT DO NOTHING)
 SELECT count(*) FROM ok
"""

# Cleaning.

UNPACKED = """
 FROM tenures t WHERE t.session = r.session AND t.from_round < r.round
 AND r.round <= coalesce(t.to_round, s.round) AND t.packed_round < r.round
"""
TRASH_ROUNDS = f"""
WITH old AS (DELETE FROM rounds r USING sessions s
 WHERE s.session = r.session AND (r.round < s.round OR s.state <> 1)
 AND NOT EXISTS (SELECT {UNPACKED}) RETURNING r.*),
 x AS (INSERT INTO trash
 SELECT format('rounds/%%s/%%s.%%s', session, lpad(round::text, 20, '0'), n - 1), {DUE}
 FROM old, generate_subscripts(parts, 1) n ON CONFLICT DO NOTHING)
 SELECT count(*) FROM old
"""
# A tenure that is over and wholly packed is of no more use.
DROP_TENURES = "DELETE FROM tenures WHERE packed_round >= to_round RETURNING shard"
DUE_TRASH = "SELECT object FROM trash WHERE due <= now() ORDER BY due, object LIMIT %(count)s"
DROP_TRASH = "DELETE FROM trash WHERE object = ANY(%(objects)s::text[]) RETURNING object"

# Reading.

TENURES = """
SELECT shard, epoch, session, from_round, to_round, packed_round FROM tenures
 WHERE shard = ANY(%(wanted)s::int[]) ORDER BY shard, epoch
"""
UNPACKED_ROUNDS = f"""
SELECT r.session, r.round, r.parts, r.footers FROM rounds r JOIN sessions s USING (session)
 WHERE EXISTS (SELECT {UNPACKED} AND t.shard = ANY(%(wanted)s::int[]))
 ORDER BY r.session, r.round
"""
PACKS = """
SELECT shard, pack, epoch, bytes, index FROM packs WHERE shard = ANY(%(wanted)s::int[])
 ORDER BY shard, pack
"""
SEGMENTS = """
SELECT partition, base, shard, epoch, gen, end_offset, bytes, index_bytes, last_append_us,
 max_time_us FROM segments WHERE shard = ANY(%(wanted)s::int[]) ORDER BY partition, base
"""
STARTS = "SELECT partition, shard, log_start FROM starts WHERE shard = ANY(%(wanted)s::int[])"
JOURNAL = """
SELECT place, kind, body FROM journal
 WHERE shard = %(h)s AND kind %% 16 = %(kind)s AND place > %(after)s ORDER BY place
"""
