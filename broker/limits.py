"""Every limit of the broker's core, with its reason. Knows no protocol: an adapter keeps its own
limits in its own folder.

Names end in their unit. A limit that an operator may want to move is a setting of
`broker/config/settings.py` instead.
"""

KIB = 1024
MIB = 1024 * KIB

# Receiving.
# One receive takes at most this; larger receives gained nothing when measured.
RECEIVE_BYTES = 256 * KIB
# 32 MiB lent out at the same time; beyond that connections get small buffers.
RECEIVE_BUFFERS_MAX = 128
RECEIVE_BUFFERS_FREE_MAX = 32  # 8 MiB kept for the next burst; the rest goes back to the allocator.
# What a connection gets when all large buffers are lent: slower, never stuck.
RECEIVE_BYTES_SMALL = 16 * KIB
# All receive buffers together, those grown for larger frames included: one Kafka request of the
# largest size (100 MiB) fits beside what everybody else sends. The default of `memory.input_bytes`.
RECEIVE_BYTES_ALL_MAX = 128 * MIB
# How long a connection waits for receive memory when all of it is in use; then it is ended.
RECEIVE_MEMORY_S = 10.0
# A piece of a frame up to this size is copied, so that its buffer can go back to the pool.
LEFTOVER_BYTES_MAX = 4 * KIB
TURN_FRAMES_MAX = 1024  # Frames handled between two checkpoints.
# No further frame is handled in that turn after this long: frames differ in cost. The more clients
# are ready, the shorter: all their turns together are to take TURNS_S, but one turn is not below
# TURN_S_MIN, some ten small frames. So a small request does not wait for long behind hundreds of
# clients that have many large requests each.
TURN_S_MAX = 0.005
TURN_S_MIN = 0.0002
TURNS_S = 0.05
# One pass over the connections that are ready; then other tasks have their turn. A turn of the loop
# costs about 20 microseconds: a hundredth of this.
PASS_S_MAX = 0.002
# Answers of a pass are sent together when it ends, or after this long (some 15 small requests).
HELD_BACK_S = 0.0005
# Records that come in a pass are delivered at its end, for this long; the rest by their tasks.
AT_ONCE_S = 0.0005
PASS_SOCKETS_MAX = 256  # Taken from epoll at once; it keeps the order, so the others come next.
# A piece of an HTTP request costs more than a small request, so it waits for the end of a pass. One
# such piece runs for each GIVEN_WAY_S of the pass: under full load they get half of the loop.
GIVEN_WAY_S = 0.0001
GIVEN_WAY_FOR_S = 0.01  # A client's next request, or its sync, is expected this soon.
# A frame that has begun and gets less than STALL_BYTES in this time will not be finished.
FRAME_STALL_S = 60.0
STALL_BYTES = 16 * KIB  # 270 bytes a second: slower than any line in use.

# Sending.
# Unsent bytes at which a connection stops reading and pulling more work.
OUTBOX_BYTES_MAX = 1 * MIB
# All connections together: what waits for sockets and for the disk, answers under way, and what was
# read ahead. The default of `memory.output_bytes`.
OUTPUT_BYTES_ALL_MAX = 128 * MIB
# What a connection may hold once half of that is used: room for a thousand connections.
OUTPUT_SHARE_BYTES_MIN = 64 * KIB
# An answer out of the last quarter, which is kept for peers that read: room for two thousand.
OUTPUT_LAST_BYTES = 16 * KIB
# A peer that takes less than STALL_BYTES in this time counts as not reading, and is cut off.
WRITE_STALL_S = 60.0
# Both times while memory is short; the connections that hold most go first.
SHORT_STALL_S = 3.0
SWEEP_S = 1.0  # Between two looks for stalled or gone peers; SHORT_STALL_S needs this.
# Between two looks for changed permissions, which open connections lose then. Many changes in a
# row, as scripts make them, cost one look.
ACCESS_SWEEP_S = 1.0
SWEEP_CONNECTIONS = 500  # Looked at between two checkpoints: less than a millisecond.
# Parts from this size on are sent from where they are instead of being copied.
OUTBOX_LARGE_BYTES = 16 * KIB
SENDMSG_PARTS_MAX = 1024  # IOV_MAX of Linux.
# Answers that wait for the disk, per connection; a thousand sends in flight are common.
ANSWERS_MAX = 4096
ANSWER_BYTES_MAX = 4 * MIB  # Their bytes; an answer behind a pending one may hold a whole fetch.

# Connections.
# A connection costs some 20 KB; the file handles run out first on most machines.
CONNECTIONS_MAX = 10_000
# Descriptors for everything but connections and idle log files (`storage/log/files.py`): files that
# a commit round holds, listeners, calls to other brokers.
FILES_FOR_OTHERS = 256
# A peer that vanishes without a word is noticed in three minutes, however idle its connection may
# be. Routers forget idle connections after five minutes or more: the probes keep them alive.
KEEPALIVE_IDLE_S = 120
KEEPALIVE_PROBE_S = 15
KEEPALIVE_PROBES = 4
LISTEN_BACKLOG = 1024  # Connections that the kernel holds until they are accepted.
CLOSE_S = 5.0  # For the peer of an ended connection to take its last answers.
# For the peer to close its side after ours, so that no reset overtakes the last answer.
LINGER_S = 1.0
LINGER_BYTES_MAX = 4 * MIB  # Input read and thrown away meanwhile.
# Connections accepted before other tasks have their turn: it takes some 10 ms until these can be
# served. Accepted one at a time, each waited for a pass over those before it: of a hundred that
# came together the last was answered after a quarter of a second.
ACCEPTED_PER_TURN = 16
ACCEPT_PAUSE_S = 0.1  # After running out of descriptors: accepting again at once would spin.
# Idle log files closed when an accept finds no descriptor: enough for the next ones to accept.
CLOSED_FOR_ACCEPT = 16

# Committing.
SYNC_STOP_S = 5.0  # For a sync that is under way when the broker stops; a disk may hang for good.

# Reading.
# A larger compressed body of another format is decoded in a thread: it may unpack to a thousand
# times as much, and more with zstd.
DECODE_INLINE_BYTES = 512
# Keys and values that one piece of a decoded body holds in memory, before others have their turn.
DECODE_BYTES_MAX = 1 * MIB
# Up to this size a body is converted directly (ten ms at most); a larger one by records, in pieces.
CONVERTED_BYTES_MAX = 1 * MIB
CONVERTED_RECORDS_MAX = 8192
# Bodies unpacked at the same time to less than 8 MiB each (`LARGE_BYTES_MIN` of
# `storage/formats/compression.py`).
UNPACKING_THREADS_MAX = 2
# Larger bodies and records unpacked or encoded at the same time: up to three times 64 MiB each, of
# which the budget for output counts one.
LARGE_THREADS_MAX = 1
# Places of one partition that could not be read, remembered for clients that ask again and again.
UNREADABLE_PLACES_MAX = 64
DECODE_INLINE_RECORDS = 1000  # This many uncompressed records take less than a millisecond.
DECODE_RECORDS_MIN = 64  # Decoding fewer at a time opens a compressed body again too often.
DECODE_RECORDS_MAX = 10_000  # Records in memory for one read: some ms of work, some MB.
READ_PIECE_BYTES = 256 * KIB  # Stored bytes that are transcoded between two checkpoints.
READ_BYTES_MIN = 64 * KIB  # Reading less at once costs as much.
# The first read of an answer. The size of the batches found sets how much the next ones ask for, so
# that nothing is read in vain where batches are small.
READ_FIRST_BYTES = 1 * MIB
# Ends of batches kept because an answer had room for the beginnings only. Each holds the buffer it
# was read into: half of those that reads reuse. With more readers such batches are read twice.
CUT_BATCHES_MAX = 4
CUT_READ_BYTES_MAX = 2 * MIB  # Of the memory behind each: a stored set may have 100 MiB.
READ_PARTS_MAX = 16_384  # Batches in one answer, however small: some ms to send, in all.
READ_TURN_BATCHES = 256  # Read in one turn: a millisecond.
# One read asks a log for no more at once, whatever the client allows.
READ_BYTES_MAX = 16 * MIB
JOINED_BYTES_MAX = 64 * MIB  # A chunked Pulsar message joined for the readers of other protocols.
JOINED_SCAN_BYTES_MAX = 256 * MIB  # How far back the first chunk is looked for, in stored bytes.
# Stored bytes left out for a reader that one read walks over before it reports how far it came.
WALK_BYTES_MAX = 64 * MIB

# Compacting.
# Work of a compaction in its thread between two pauses, and the longest pause. A pause is as long
# as the work before it: at most half of a processor, also with a slow disk.
COMPACTION_PIECE_S = 0.02
COMPACTION_REST_S_MAX = 0.5

# Of the whole broker. Each costs file descriptors, some KB of memory and start-up time.
TOPICS_MAX = 50_000
PARTITIONS_MAX = 100_000
# Of one topic. Each costs a folder, files and a cursor of every subscription; Iggy's own bound is
# ten times that.
TOPIC_PARTITIONS_MAX = 10_000

# Of all subscriptions together. Each limit, once reached, means some 100 MB.
SUBSCRIPTIONS_MAX = 250_000
CURSORS_MAX = 500_000
ALL_RANGES_MAX = 4 * MIB  # Acknowledged ranges, 16 bytes each; one cursor may have a quarter.
