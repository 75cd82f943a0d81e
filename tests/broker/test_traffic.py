"""Counts of a partition."""

from braidlog.broker.metrics import Metrics
from braidlog.broker.traffic import PartitionTraffic


def test_a_partition_counts_the_records_of_all_protocols():
    metrics, traffic = Metrics(), PartitionTraffic()
    metrics.records_in("kafka", "a/b/t", 3, 30, traffic)
    metrics.records_in("iggy", "a/b/t", 1, 10, traffic)
    metrics.records_out("pulsar", "a/b/t", 2, 20, traffic)
    metrics.records_in("kafka", "a/b/t", 5, 50)  # Another partition's.
    assert traffic == PartitionTraffic(4, 40, 2, 20)
    assert metrics.topic_total("braidlog_records_in", "a/b/t") == 9
