"""Lets Spark find the format `braidlog` by itself: it looks for packages whose name begins with
`pyspark_` and that have a `DefaultSource`. Everything else is in `braidlog.storage.export.source`.
"""

from braidlog.storage.export.source.plugin import BraidlogSource as DefaultSource
from braidlog.storage.export.source.plugin import enable

__all__ = ["DefaultSource", "enable"]
