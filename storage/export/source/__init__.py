"""The Spark data source `braidlog`: batch and stream, with the options of Spark's Kafka source.

`options` and `offsets` know no Spark; `plugin`, `batch` and `stream` are what Spark calls.
"""
