"""The Spark data source `braidlog`: batch and stream, with the options of Spark's Kafka source.

`options` and `offsets` know no Spark; Spark calls `plugin`, `batch` and `stream`.
"""
