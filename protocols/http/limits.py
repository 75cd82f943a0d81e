"""Limits of the HTTP listener, with their reasons. `docs/limits.md` shows them to users.

What an operator may want to change is an option of `options.py` instead.
"""

KIB = 1024
MIB = 1024 * KIB

# Messages of one produce request; more are better sent as several requests.
MESSAGES_MAX = 10_000
# One record's key, value and properties together: what Pulsar's frames take.
RECORD_BYTES_MAX = 5 * MIB
# All records of a request: Avro's fields that are left out take their defaults, of any size. They
# have that many bytes at least, or that many times the request's: a number of two characters takes
# eight.
RECORDS_BYTES_MIN, RECORDS_EXPANSION = 16 * MIB, 4
PROPERTIES_MAX = 1000  # Of one message; a property costs a hundred bytes in memory.
# Messages checked or shown between two checkpoints: some ms of the loop.
TURN_MESSAGES = 100
# The same between two turns for ready clients of other protocols: a tenth of a millisecond.
PIECE_MESSAGES = 20
# A larger body is read in a thread if its values are slow ones (Avro).
INLINE_SLOW_BYTES = 4 * KIB
# A larger one is always read in a thread: 64 KiB of JSON take some ms, 10 MiB a second.
INLINE_BODY_BYTES = 64 * KIB
PROPERTIES_BYTES_INLINE = 64 * KIB  # A message's larger ones are counted before they are parsed.

# All request bodies in memory at the same time; a body up to the small size is always accepted.
BODIES_BYTES_ALL_MAX = 64 * MIB
BODY_BYTES_SMALL = 64 * KIB
# Requests whose body does not come at once. They do not count as running, or a few slow clients
# would keep all others out; what has come of small bodies is not in the budget above.
UPLOADS_MAX = 1000
# Bodies served at the same time, except small ones: JSON becomes objects of thirty times its size,
# and Python keeps half of the memory of a burst. Others wait this long before they are refused.
SERVED_BYTES_MAX, SERVED_WAIT_S = 2 * MIB, 20.0
SERVED_BYTES_SMALL = 16 * KIB
# Reads and fetches that wait for records, counted apart from the requests being worked on.
WAITING_MAX = 5000
TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX = 3000, 60_000
READ_MESSAGES_DEFAULT, READ_MESSAGES_MAX = 100, 10_000
READ_BYTES_DEFAULT, READ_BYTES_MAX = MIB, 10 * MIB
# How many times their size keys and values take in an answer: themselves, their text and its JSON.
ANSWER_EXPANSION = 4
# JSON made between two checkpoints, and sent at once: a millisecond.
JSON_PIECE_BYTES = 256 * KIB

# Bytes of stored batches in one answer of the raw log: few requests, little of the output budget.
RAW_BYTES_DEFAULT, RAW_BYTES_MAX = MIB, 4 * MIB

ACK_TIMEOUT_MS_DEFAULT = 60_000
ACK_TIMEOUT_MS_MIN, ACK_TIMEOUT_MS_MAX = 1000, 86_400_000
# Messages that a consumer over HTTP may hold; each costs some hundred bytes.
CONSUMER_UNACKED_MAX = 10_000
CONSUMER_PARTITIONS_MAX = 1000  # In delivery each one is a separate consumer.
NAME_CHARACTERS_MAX = 255  # Names of subscriptions and consumers.
MESSAGE_IDS_MAX = 10_000  # In one acknowledgement.
