"""An independent description of dialect D0's answers, with construct, from the source document."""

from construct import Bytes, GreedyRange, Int8ul, Int32ul, Int64ul, PrefixedArray, Struct

from tests.protocols.iggy.description import MEMBERSHIP, PARTITION, POLLED_MESSAGE, STR8, STR32

CLIENT = Struct(
    "client_id" / Int32ul, "transport" / Int8ul, "address" / STR32, "groups_count" / Int32ul
)
STREAM = Struct(
    "id" / Int32ul,
    "created_at" / Int64ul,
    "topics" / Int32ul,
    "size" / Int64ul,
    "messages" / Int64ul,
    "name" / STR8,
)
TOPIC = Struct(
    "id" / Int32ul,
    "created_at" / Int64ul,
    "partitions" / Int32ul,
    "expiry" / Int32ul,
    "size" / Int64ul,
    "messages" / Int64ul,
    "name" / STR8,
)
GROUP = Struct("id" / Int32ul, "partitions" / Int32ul, "members" / Int32ul)
MEMBER = Struct("id" / Int32ul, "partitions" / PrefixedArray(Int32ul, Int32ul))
STATS = Struct(
    "process_id" / Int32ul,
    "machine" / Bytes(4 + 6 * 8),
    "written_bytes" / Int64ul,
    "messages_size" / Int64ul,
    "streams" / Int32ul,
    "topics" / Int32ul,
    "partitions" / Int32ul,
    "segments" / Int32ul,
    "messages" / Int64ul,
    "clients" / Int32ul,
    "groups" / Int32ul,
    "hostname" / STR32,
    "os_name" / STR32,
    "os_version" / STR32,
    "kernel_version" / STR32,
)

ANSWERS = {
    10: STATS,
    20: Struct("client" / CLIENT, "memberships" / GreedyRange(MEMBERSHIP)),
    21: Struct("client" / CLIENT, "memberships" / GreedyRange(MEMBERSHIP)),
    22: Struct("clients" / GreedyRange(CLIENT)),
    100: Struct(
        "partition" / Int32ul,
        "current_offset" / Int64ul,
        "messages_count" / Int32ul,
        "messages" / GreedyRange(POLLED_MESSAGE),
    ),
    120: Struct("partition" / Int32ul, "current_offset" / Int64ul, "stored_offset" / Int64ul),
    200: Struct("stream" / STREAM, "topics" / GreedyRange(TOPIC)),
    201: Struct("streams" / GreedyRange(STREAM)),
    300: Struct("topic" / TOPIC, "partitions" / GreedyRange(PARTITION)),
    301: Struct("topics" / GreedyRange(TOPIC)),
    600: Struct("group" / GROUP, "members" / GreedyRange(MEMBER)),
    601: Struct("groups" / GreedyRange(GROUP)),
}
