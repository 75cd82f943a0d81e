"""Entry point by which Spark finds the format `braidlog`. Spark looks for packages whose name
begins with `pyspark_` and that have a `DefaultSource`. All other code is in
`braidlog.storage.export.source`.
"""

from braidlog.storage.export.source.plugin import BraidlogSource as DefaultSource
from braidlog.storage.export.source.plugin import enable

__all__ = ["DefaultSource", "enable"]
