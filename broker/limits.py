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
# All of them together, those grown for larger frames included: one Kafka request of the largest
# size (100 MiB) fits beside what everybody else sends. The default of `memory.input_bytes`.
RECEIVE_BYTES_ALL_MAX = 128 * MIB
# For memory to receive into, when all of it is in use; then the connection is ended.
RECEIVE_MEMORY_S = 10.0
# A shorter piece of a frame is copied, so that its buffer can go back.
LEFTOVER_BYTES_MAX = 4 * KIB
TURN_FRAMES_MAX = 1024  # Frames handled between two checkpoints.
# And no further frame after this long, however few they were: frames differ in cost.
TURN_S_MAX = 0.005
# One pass over the connections that are ready; then other tasks have their turn. A turn of the loop
# costs about 20 microseconds: one in a hundred of this.
PASS_S_MAX = 0.002
# Answers of a pass leave together when it ends, or after so long: some fifteen small requests.
HELD_BACK_S = 0.0005
# Records that come in a pass are delivered at its end for so long; then by tasks, in their turns.
AT_ONCE_S = 0.0005
PASS_SOCKETS_MAX = 256  # Found ready at once; those behind them come next, epoll keeps the order.
# What costs more than a small request, a piece of one over HTTP, has its turn behind a pass: one
# for each such time that the pass took. Under full load connections so leave it half of the loop.
GIVEN_WAY_S = 0.0001
GIVEN_WAY_FOR_S = 0.01  # After a client's request its next one, or its sync, is expected so long.
# A frame that has begun and gets less than STALL_BYTES in this time will not be finished.
FRAME_STALL_S = 60.0
STALL_BYTES = 16 * KIB  # 270 bytes a second: slower than any line that people use.

# Sending.
# Unsent bytes at which a connection stops reading and pulling more work.
OUTBOX_BYTES_MAX = 1 * MIB
# All connections together: what waits for sockets and for the disk, answers under way, and what was
# read ahead. The default of `memory.output_bytes`.
OUTPUT_BYTES_ALL_MAX = 128 * MIB
# What a connection may hold once half of that is used: room for a thousand such.
OUTPUT_SHARE_BYTES_MIN = 64 * KIB
# A peer that takes less than STALL_BYTES in this time does not read.
WRITE_STALL_S = 60.0
# The same for both directions while memory is short: the largest go first.
SHORT_STALL_S = 3.0
SWEEP_S = 1.0  # Between two looks at who stalls and who is gone: SHORT_STALL_S asks for as much.
# Until an open connection has lost what a user may do no more. Of many changes in turn, as scripts
# make them, one look is taken.
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
# Files that connections leave to the log (512, `storage/log/files.py`) and to everything else.
FILES_FOR_OTHERS = 768
# A peer that is gone without a word is found out in three minutes, however idle its connection is
# allowed to be. Routers forget idle connections after five minutes or more: these probes keep them.
KEEPALIVE_IDLE_S = 120
KEEPALIVE_PROBE_S = 15
KEEPALIVE_PROBES = 4
LISTEN_BACKLOG = 1024  # Connections that the kernel holds until they are accepted.
CLOSE_S = 5.0  # For an ended connection to take its last answers.
# For the peer to close its side after ours, so that no reset overtakes the last answer.
LINGER_S = 1.0
LINGER_BYTES_MAX = 4 * MIB  # What is read and thrown away meanwhile.
# Connections accepted before others have their turn: some 10 ms until these can be served. Taken
# one at a time, each waited for a pass over those before it: the last of a hundred that came
# together was answered after a quarter of a second.
ACCEPTED_PER_TURN = 16
ACCEPT_PAUSE_S = 0.1  # After running out of file handles: accepting again at once would spin.

# Committing.
SYNC_STOP_S = 5.0  # For the sync that runs while the broker is cancelled; a disk may hang for good.

# Reading.
# A larger compressed body of another format is decoded in a thread: it may unpack to a thousand
# times as much, and more with zstd.
DECODE_INLINE_BYTES = 512
# Keys and values in memory for one piece of what a compressed body holds, before others' turn.
DECODE_BYTES_MAX = 1 * MIB
# A larger body goes by records, in pieces, though there is a short way: that takes ten ms at most.
CONVERTED_BYTES_MAX = 1 * MIB
CONVERTED_RECORDS_MAX = 8192
# Bodies unpacked at the same time; each may take twice 64 MiB for as long as that lasts.
UNPACKING_THREADS_MAX = 2
# Places of one partition that could not be read, remembered for clients that ask again and again.
UNREADABLE_PLACES_MAX = 64
DECODE_INLINE_RECORDS = 1000  # This many uncompressed records take less than a millisecond.
DECODE_RECORDS_MIN = 64  # Decoding fewer at a time opens a compressed body again too often.
DECODE_RECORDS_MAX = 10_000  # Records in memory for one read: some ms of work, some MB.
READ_PIECE_BYTES = 256 * KIB  # Stored bytes that are transcoded between two checkpoints.
READ_BYTES_MIN = 64 * KIB  # Reading less at once costs as much.
# What an answer begins with; the size of the batches found says how much is asked for next, so that
# nothing is read for nothing where batches are small.
READ_FIRST_BYTES = 1 * MIB
# Ends of batches kept because an answer had room for the beginnings only, in the memory that they
# were read into: half of what reads use again. With more readers such batches are read twice.
CUT_BATCHES_MAX = 4
CUT_READ_BYTES_MAX = 2 * MIB  # Of the memory behind each: a stored set may have 100 MiB.
READ_PARTS_MAX = 16_384  # Batches in one answer, however small: some ms to send, in all.
READ_TURN_BATCHES = 256  # Read in one turn: a millisecond.
# One read asks a log for no more at once, whatever the client allows itself.
READ_BYTES_MAX = 16 * MIB
JOINED_BYTES_MAX = 64 * MIB  # A chunked Pulsar message joined for the readers of other protocols.
JOINED_SCAN_BYTES_MAX = 256 * MIB  # How far back the first chunk is looked for, in stored bytes.
# Left-out records that one read walks over before it says how far it came.
WALK_BYTES_MAX = 64 * MIB

# Compacting.
# Work of a compaction in its thread between two pauses; a pause is as long as the work before it
# took, but no longer than this: at most half of a processor, also with a disk that is slow.
COMPACTION_PIECE_S = 0.02
COMPACTION_REST_S_MAX = 0.5

# Of the whole broker. Each costs descriptors, some KB of memory and time at a start.
TOPICS_MAX = 50_000
PARTITIONS_MAX = 100_000

# Of all subscriptions together: some 100 MB each, where clients make as many as they can.
SUBSCRIPTIONS_MAX = 250_000
CURSORS_MAX = 500_000
ALL_RANGES_MAX = 4 * MIB  # Of 16 bytes; one cursor has at most a quarter of them.
