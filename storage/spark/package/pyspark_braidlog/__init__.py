"""Lets Spark find the format `braidlog` by itself: it looks for packages whose name begins with
`pyspark_` and that have a `DefaultSource`. Everything else is in `storage.spark.source`.
"""

from storage.spark.source.plugin import BraidlogSource as DefaultSource
from storage.spark.source.plugin import enable

__all__ = ["DefaultSource", "enable"]
