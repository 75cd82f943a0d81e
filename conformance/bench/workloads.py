"""The rows of the table: every workload with a description and a goal.

A goal is a ratio, unless the goal has a unit; `CPU` is the broker's processor time per message.
"""

from conformance.bench import encrypted, http_load, moving, waiting
from conformance.bench.iggy_load import D2, D5, V, W
from conformance.bench.mixed import MixedD2
from conformance.bench.sample import Workload

_SETS = "1 conn, 1 part, 128 KiB sets, 8 in flight"
_SENDS = "1 conn, 1 part, 1000 a SEND, 4 in flight"
_ACKS = "100 conns, 1 part, 1 KB, 1 in flight each"
_POLLS = "1 conn, 1 part, 1000 a POLL"

# Messages that differ as real messages do; the other rows send equal messages, and are limits.
MIXED_WORKLOADS = [
    Workload("kafka-produce-mix-100", _SETS, moving.kafka_produce_mixed(100, 8), "0.7"),
    Workload("kafka-produce-mix-1k", _SETS, moving.kafka_produce_mixed(1000, 8), "0.7"),
    Workload(
        "pulsar-send-mix-100",
        "1 conn, 1 part, 1000 unbatched in flight",
        moving.pulsar_sends_mixed(100, 1000),
        "4; CPU 3",
    ),
    Workload("iggy-send-mix-100", _SENDS, moving.iggy_sends(100, 1000, MixedD2()), "CPU 0.3"),
]

WORKLOADS = [
    *MIXED_WORKLOADS,
    Workload("kafka-produce-100", _SETS, moving.kafka_produce(100, 8), "0.7"),
    Workload("kafka-produce-1k", _SETS, moving.kafka_produce(1000, 8), "0.7"),
    Workload("kafka-fetch-100", "1 conn, 1 part, 1 MiB a fetch", moving.kafka_fetch(100), "0.5"),
    Workload("kafka-fetch-1k", "1 conn, 1 part, 1 MiB a fetch", moving.kafka_fetch(1000), "0.5"),
    Workload(
        "kafka-fetch-256k",
        "1 conn, 1 part, 1 KB, 256 KiB a fetch",
        moving.kafka_fetch(1000, 256 * 1024),
        "0.5",
    ),
    Workload("kafka-produce-1k-tls", _SETS, encrypted.kafka_produce(1000, 8), "CPU of plain x 2.5"),
    Workload(
        "kafka-fetch-1k-tls",
        "1 conn, 1 part, 1 MiB a fetch",
        encrypted.kafka_fetch(1000),
        "CPU of plain x 2.5",
    ),
    Workload(
        "pulsar-send-100",
        "1 conn, 1 part, 1000 unbatched in flight",
        moving.pulsar_sends(100, 1000, 0),
        "4; CPU 3",
    ),
    Workload(
        "pulsar-batch-100",
        "1 conn, 1 part, batches of 100, 1000 in flight",
        moving.pulsar_sends(100, 1000, 100),
        "CPU 0.2",
    ),
    Workload(
        "pulsar-deliver-100",
        "1 conn, 1 part, unbatched, grouped acks",
        moving.pulsar_delivery(100, 0),
        "CPU 7",
    ),
    Workload(
        "pulsar-deliver-batch",
        "1 conn, 1 part, batches of 100",
        moving.pulsar_delivery(100, 100),
        "CPU 0.2",
    ),
    Workload("iggy-send-100", _SENDS, moving.iggy_sends(100, 1000, D2()), "CPU 0.3"),
    Workload("iggy-send-1k", _SENDS, moving.iggy_sends(1000, 1000, D2()), "CPU 1.2"),
    Workload("iggy-d5-send-100", _SENDS, moving.iggy_sends(100, 1000, D5()), "CPU of D2"),
    Workload("iggy-v-send-100", _SENDS, moving.iggy_sends(100, 1000, V()), "CPU of D2 x 1.3"),
    Workload("iggy-poll-100", _POLLS, moving.iggy_polls(100, D2(), D2()), "CPU 0.15"),
    Workload("iggy-poll-1k", _POLLS, moving.iggy_polls(1000, D2(), D2()), "CPU 0.6"),
    Workload("iggy-d5-poll-1k", _POLLS, moving.iggy_polls(1000, D5(), D5()), "kafka-fetch-256k"),
    Workload("iggy-d5-poll-100", _POLLS, moving.iggy_polls(100, D5(), D5()), "as iggy-poll-100"),
    Workload("iggy-v-poll-1k", _POLLS, moving.iggy_polls(1000, V(), V()), "CPU of D2 x 1.2"),
    Workload("iggy-w-poll-1k", _POLLS, moving.iggy_polls(1000, W(), W()), "CPU of D2 x 1.2"),
    Workload("iggy-v-poll-100", _POLLS, moving.iggy_polls(100, V(), V()), "as kafka-to-iggy"),
    Workload("iggy-d2-to-v", _POLLS, moving.iggy_polls(100, V(), D2()), "as kafka-to-iggy"),
    Workload("iggy-v-to-d2", _POLLS, moving.iggy_polls(100, D2(), V()), "as kafka-to-iggy"),
    Workload(
        "kafka-to-pulsar", "100 B, an entry each, grouped acks", moving.kafka_to_pulsar, "CPU 2.5"
    ),
    Workload("kafka-to-iggy", "100 B, 1000 a POLL", moving.iggy_polls(100, D2(), None), "CPU 1"),
    Workload(
        "pulsar-to-kafka",
        "100 B, batches of 100, 1 MiB a fetch",
        moving.pulsar_to_kafka,
        "CPU 1.7",
    ),
    Workload("requests-1", "1 conn, PING", waiting.requests(1), "0.5"),
    Workload("requests-50", "50 conns, PING, 1 in flight each", waiting.requests(50), "0.5"),
    Workload(
        "commits", "1 conn, 100 partitions each, 4 in flight", waiting.offset_commits, "100 k"
    ),
    Workload(
        "acks-1", "1 producer, 1 part, 1 KB, 1 in flight", waiting.acknowledgements(1, 1), "0.35"
    ),
    Workload(
        "acks-10",
        "10 producers, 1 part, 1 KB, 1 in flight each",
        waiting.acknowledgements(10, 1),
        "0.35",
    ),
    Workload(
        "acks-100",
        "100 producers, 1 part, 1 KB, 1 in flight each",
        waiting.acknowledgements(100, 1),
        "12 k",
    ),
    Workload(
        "acks-100-spread",
        "100 producers, 100 parts, 1 KB, 1 in flight each",
        waiting.acknowledgements(100, 100),
        "6 k",
    ),
    Workload("iggy-acks-100", _ACKS, waiting.iggy_sends(D2, 100)),
    Workload("iggy-v-acks-100", _ACKS, waiting.iggy_sends(V, 100), "CPU of D2 x 1.2"),
    Workload("iggy-w-acks-100", _ACKS, waiting.iggy_sends(W, 100), "CPU of D2 x 1.2"),
    Workload("ack-latency", "1 producer, 1 part, 1 KB", waiting.one_producer_latency),
    Workload(
        "receive-p50",
        "publish to receive, 1000/s, 100 B",
        waiting.receive_latency(50),
        "2/S + 0.7 ms",
    ),
    Workload("receive-p99", "publish to receive, 1000/s, 100 B", waiting.receive_latency(99)),
    Workload(
        "http-produce-1",
        "10 conns, 1 message a POST",
        http_load.produce(1),
        str(http_load.WANTED),
    ),
    Workload("http-produce-100", "10 conns, 100 messages a POST", http_load.produce(100), "0.25"),
    Workload("http-read-100", "10 conns, 100 messages a GET", http_load.read(100)),
    Workload(
        "http-latency",
        "10 conns, 1 message a POST, half the wanted rate",
        http_load.latency,
        "at most 50 ms",
    ),
    Workload(
        "http-beside-kafka",
        "1 producer's acks beside POSTs at half the wanted rate",
        http_load.acks_beside(http_load.half_wanted),
        "at most 2",
    ),
    Workload(
        "http-beside-kafka-own",
        "the same beside POSTs at half the rate that is reached",
        http_load.acks_beside(http_load.half_reached),
    ),
    Workload(
        "light-client",
        "Metadata beside 2 conns of pipelined 128 KiB sets",
        waiting.light_beside_bulk,
        "at most 50 ms",
    ),
]
