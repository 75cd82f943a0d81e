"""Braidlog: a message broker with one shared log behind Kafka, Pulsar, Iggy and HTTP.

Public are `__version__`, `braidlog.testing`, the command line `braidlog` and the Spark data source
`braidlog` (the package `pyspark_braidlog` registers the data source). All other names are internal:
names and behaviour may change in any release.
"""

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """Read the version when a program asks for it: `importlib.metadata` is slow to import."""
    if name == "__version__":
        from importlib.metadata import version

        return version("braidlog")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
