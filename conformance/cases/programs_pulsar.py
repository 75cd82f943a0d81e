"""A program in Java with Pulsar's client and admin client: every kind of subscription, delayed
messages, retry and dead letters, chunks, schemas, admin calls.
"""

from conformance.programs.pulsar_java_program import run as run_java
from conformance.programs.running import NotBuilt
from conformance.runner import Context, Skip

CLIENTS = ["pulsar java 4.2.4"]


def run(context: Context) -> None:
    pulsar, http = (":".join(map(str, context.address(one))) for one in ("pulsar", "http"))
    try:
        lines = run_java(pulsar, f"http://{http}")
    except NotBuilt as reason:
        raise Skip(str(reason)) from None
    assert lines and all(line.startswith("ok ") for line in lines), lines
