"""All attackable protocols."""

from conformance.hostile import rows_http, rows_iggy, rows_kafka, rows_pulsar
from conformance.hostile.rows import Protocol


def protocols() -> dict[str, Protocol]:
    """Return the attack on each listener, by its name."""
    modules = (rows_kafka, rows_pulsar, rows_iggy, rows_http)
    return {found.name: found for found in (module.protocol() for module in modules)}
