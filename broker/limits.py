"""Every limit of the broker's core, with its reason. Knows no protocol: an adapter keeps its own
limits in its own folder.

Names end in their unit. A limit that an operator may want to move is a setting of
`broker/config/settings.py` instead.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

# Receiving.
# Largest receive; larger receives gained nothing when measured.
RECEIVE_BYTES = 256 * KIB
# 32 MiB lent at the same time; further connections get small buffers.
RECEIVE_BUFFERS_MAX = 128
RECEIVE_BUFFERS_FREE_MAX = 32  # 8 MiB kept for the next burst; the rest goes back to the allocator.
# Buffer of a connection while all large buffers are lent: slower, never stuck.
RECEIVE_BYTES_SMALL = 16 * KIB
# All receive buffers together, including those grown for larger frames: a Kafka request of the
# largest size (100 MiB) fits beside the input of other clients. The default of
# `memory.input_bytes`.
RECEIVE_BYTES_ALL_MAX = 128 * MIB
# Longest wait of a connection for receive memory; then the connection ends.
RECEIVE_MEMORY_S = 10.0
# A piece of a frame up to this size is copied, so that the buffer returns to the pool.
LEFTOVER_BYTES_MAX = 4 * KIB
TURN_FRAMES_MAX = 1024  # Frames handled between two checkpoints.
# After this time a turn handles no further frame: frames differ in cost. The more clients are
# ready, the shorter the turn: all turns together take TURNS_S, but no turn is shorter than
# TURN_S_MIN, some ten small frames. So a small request does not wait for long behind hundreds of
# clients with many large requests each.
TURN_S_MAX = 0.005
TURN_S_MIN = 0.0002
TURNS_S = 0.05
# A pass over the ready connections; then other tasks have their turn. A turn of the loop costs
# about 20 microseconds: a hundredth of this.
PASS_S_MAX = 0.002
# Answers of a pass are sent together at its end, or after this time (some 15 small requests).
HELD_BACK_S = 0.0005
# Records that arrive in a pass are delivered at its end, for this time; tasks deliver the rest.
AT_ONCE_S = 0.0005
# Sockets taken from epoll at once; epoll keeps the order, so the others come next.
PASS_SOCKETS_MAX = 256
# A pass with so many known to be ready does not ask epoll for others: it cannot serve more.
PASS_DUE_ENOUGH = 128
# A piece of an HTTP request costs more than a small request, so such a piece waits for the end of a
# pass. A piece runs for each GIVEN_WAY_S of the pass: under full load these pieces get half of the
# loop.
GIVEN_WAY_S = 0.0001
GIVEN_WAY_FOR_S = 0.01  # A client's next request, or the sync of a request, is expected this soon.
# A frame that has begun and gets less than STALL_BYTES in this time will not be finished.
FRAME_STALL_S = 60.0
STALL_BYTES = 16 * KIB  # 270 bytes a second: slower than any line in use.

# Sending.
# Unsent bytes at which a connection stops reading and pulling more work.
OUTBOX_BYTES_MAX = 1 * MIB
# All connections together: bytes that wait for sockets and for the disk, unfinished answers, and
# records read ahead. The default of `memory.output_bytes`.
OUTPUT_BYTES_ALL_MAX = 128 * MIB
# Share of a connection once half of the budget is used: room for a thousand connections.
OUTPUT_SHARE_BYTES_MIN = 64 * KIB
# An answer from the last quarter, which is kept for peers that read: room for two thousand.
OUTPUT_LAST_BYTES = 16 * KIB
# A peer that takes less than STALL_BYTES in this time counts as not reading, and is cut off.
WRITE_STALL_S = 60.0
# Both times while memory is short; the connections that hold most go first.
SHORT_STALL_S = 3.0
SWEEP_S = 1.0  # Interval of checks for stalled or lost peers; SHORT_STALL_S needs this.
# Interval of checks for changed permissions, which open connections lose then. Many changes in a
# row, as scripts make them, share a check.
ACCESS_SWEEP_S = 1.0
SWEEP_CONNECTIONS = 500  # Connections checked between two checkpoints: less than a millisecond.
# Larger parts are sent without a copy.
OUTBOX_LARGE_BYTES = 16 * KIB
SENDMSG_PARTS_MAX = 1024  # IOV_MAX of Linux.
# Answers that wait for the disk, per connection; a thousand sends in flight are common.
ANSWERS_MAX = 4096
# Bytes of these answers; an answer behind a pending answer may hold a whole fetch.
ANSWER_BYTES_MAX = 4 * MIB

# Connections.
# A connection costs some 20 KB; the file handles run out first on most machines.
CONNECTIONS_MAX = 10_000
# Descriptors for all uses but connections and idle log files (`storage/log/files.py`): files of a
# commit round, listeners, calls to other brokers.
FILES_FOR_OTHERS = 256
# A peer that vanishes silently is noticed in three minutes, even on an idle connection. Routers
# forget idle connections after five minutes or more: the probes keep the connections alive.
KEEPALIVE_IDLE_S = 120
KEEPALIVE_PROBE_S = 15
KEEPALIVE_PROBES = 4
LISTEN_BACKLOG = 1024  # Connections that the kernel holds until they are accepted.
CLOSE_S = 5.0  # For the peer of an ended connection to take its last answers.
# Time for the peer to close after the broker, so that no reset overtakes the last answer.
LINGER_S = 1.0
LINGER_BYTES_MAX = 4 * MIB  # Input that is read and dropped meanwhile.
# Connections accepted before other tasks have their turn: serving starts some 10 ms later. Accepted
# one at a time, each connection waited for a pass over the earlier connections: of a hundred
# simultaneous connections the last was answered after a quarter of a second.
ACCEPTED_PER_TURN = 16
ACCEPT_PAUSE_S = 0.1  # After running out of descriptors: accepting again at once would spin.
# Idle log files closed when an accept finds no descriptor: enough for the next accepts.
CLOSED_FOR_ACCEPT = 16

# Committing.
SYNC_STOP_S = 5.0  # For a sync that is under way when the broker stops; a disk may hang for good.

# Reading.
# A larger compressed body of another format is decoded in a thread: the body may unpack to a
# thousand times the size, and more with zstd.
DECODE_INLINE_BYTES = 512
# Keys and values in memory for a piece of a decoded body, before others have their turn.
DECODE_BYTES_MAX = 1 * MIB
# Up to this size a body is converted directly (ten ms at most); larger bodies by records, in
# pieces.
CONVERTED_BYTES_MAX = 1 * MIB
CONVERTED_RECORDS_MAX = 8192
# Bodies unpacked at the same time to less than 8 MiB each (`LARGE_BYTES_MIN` of
# `storage/large.py`).
UNPACKING_THREADS_MAX = 2
# Larger bodies and records unpacked or encoded at the same time: up to three times 64 MiB each, of
# which the budget for output counts a third.
LARGE_THREADS_MAX = 1
# Unreadable places of a partition, remembered for clients that ask again and again.
UNREADABLE_PLACES_MAX = 64
DECODE_INLINE_RECORDS = 1000  # This many uncompressed records take less than a millisecond.
DECODE_RECORDS_MIN = 64  # Decoding fewer at a time opens a compressed body again too often.
DECODE_RECORDS_MAX = 10_000  # Records in memory for a read: some ms of work, some MB.
READ_PIECE_BYTES = 256 * KIB  # Stored bytes that are transcoded between two checkpoints.
READ_BYTES_MIN = 64 * KIB  # Reading less at once costs as much.
# The first read of an answer. The size of the batches found sets the size of later reads, so that
# no read is in vain if batches are small. With a batch header it fits the reused memory of reads
# (`storage/log/read_buffers.py`).
READ_FIRST_BYTES = 1264 * KIB
# The same for a read of so many records, whose size is known from the mean record of the log: a
# poll of 1,000 messages of 4 KB takes a single read.
READ_FIRST_COUNTED_BYTES = 4080 * KIB
# Ends of batches, kept because an answer had room for the beginnings only. Each holds the buffer of
# its read: half of the reused buffers. With more readers such batches are read twice.
CUT_BATCHES_MAX = 4
CUT_READ_BYTES_MAX = 2 * MIB  # Limit of the memory behind each: a stored set may have 100 MiB.
READ_PARTS_MAX = 16_384  # Batches in an answer, however small: some ms to send, in all.
READ_TURN_BATCHES = 256  # Batches read in a turn: a millisecond.
# Most bytes that a read asks from a log, whatever the client allows.
READ_BYTES_MAX = 16 * MIB
JOINED_BYTES_MAX = 64 * MIB  # A chunked Pulsar message joined for the readers of other protocols.
JOINED_SCAN_BYTES_MAX = 256 * MIB  # Stored bytes that are searched for the first chunk.
# Stored bytes hidden from a reader that a read skips before it reports the progress.
WALK_BYTES_MAX = 64 * MIB

# Compacting.
# Work of a compaction in its thread between two pauses, and the longest pause. A pause is as long
# as the work before: at most half of a processor, also with a slow disk.
COMPACTION_PIECE_S = 0.02
COMPACTION_REST_S_MAX = 0.5

# Clients hear of a new owner within this time, and of the former owner's refusals.
TAKEOVER_S = 10.0

# Limits of the state that clients create. Each costs memory, and most cost room in each snapshot of
# the catalogue. A broker gets these limits as `StateLimits`: a test hands in smaller ones.
# Each topic and partition also costs file descriptors and start-up time.
TOPICS_MAX = 50_000
PARTITIONS_MAX = 100_000
TENANTS_MAX = 1000
DESCRIBED_CLUSTERS_MAX = 100  # Of Pulsar's admin API; each 16 KiB at most.
# Partitions per rename, all changed in a single turn of the loop: about 5 us each.
RENAMED_PARTITIONS_MAX = 5_000
# Each partition counts; some 2 KB of memory.
NON_PERSISTENT_TOPICS_MAX = 10_000
# Of all subscriptions together. Each limit, once reached, means some 100 MB.
SUBSCRIPTIONS_MAX = 250_000
CURSORS_MAX = 500_000
ALL_RANGES_MAX = 4 * MIB  # Acknowledged ranges, 16 bytes each; a cursor may have a quarter.
TOPIC_SUBSCRIPTIONS_MAX = 100_000  # Some 50 MB with a cursor each; bounds random names.
# Named groups of a topic, which Iggy's clients create; some 2 MB in memory, and in each snapshot.
TOPIC_GROUPS_MAX = 10_000
PRODUCER_NAMES_MAX = 100_000  # For all topics together; about 20 MB.
USERS_MAX = 10_000  # About 1 KB each.
TOKENS_MAX = 100  # Of a user: Iggy's default.
GRANTS_MAX = 100_000  # Some 300 bytes each.
GRANT_ANSWERS_MAX = 10_000  # Remembered until a permission changes, some 400 bytes each.

# Limits of a topic. Each partition costs a folder, files and a cursor of every subscription; Iggy's
# limit is ten times as high.
TOPIC_PARTITIONS_MAX = 10_000


@dataclass(slots=True, frozen=True)
class StateLimits:
    """The greatest numbers of things that clients create in a broker."""

    topics: int = TOPICS_MAX
    partitions: int = PARTITIONS_MAX
    tenants: int = TENANTS_MAX
    described_clusters: int = DESCRIBED_CLUSTERS_MAX
    renamed_partitions: int = RENAMED_PARTITIONS_MAX
    non_persistent_topics: int = NON_PERSISTENT_TOPICS_MAX
    subscriptions: int = SUBSCRIPTIONS_MAX
    cursors: int = CURSORS_MAX
    ack_ranges: int = ALL_RANGES_MAX
    topic_subscriptions: int = TOPIC_SUBSCRIPTIONS_MAX
    topic_groups: int = TOPIC_GROUPS_MAX
    producer_names: int = PRODUCER_NAMES_MAX
    users: int = USERS_MAX
    user_tokens: int = TOKENS_MAX
    grants: int = GRANTS_MAX
    grant_answers: int = GRANT_ANSWERS_MAX


STATE_LIMITS = StateLimits()
