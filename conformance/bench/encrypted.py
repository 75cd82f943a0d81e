"""Bulk over TLS beside plain sockets: the broker's cost of encryption.

The workloads start a separate broker, so that OpenSSL's memory does not count for the other
workloads.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from conformance.bench import moving
from conformance.bench.moving import Run
from conformance.bench.sample import BenchRound, BenchSample
from conformance.server import RunningBroker

NAME = "kafka-tls"  # The listener beside the plain one.


@contextmanager
def _encrypted(round_: BenchRound) -> Iterator[tuple[BenchRound, ssl.SSLContext]]:
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    certificate = Path(round_.broker.folder) / "bench.pem"
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificate))
    settings = (
        f"listeners.{NAME}.protocol=kafka",
        f"listeners.{NAME}.listen=127.0.0.1:0",
        f"listeners.{NAME}.tls.certificate_file={certificate}",
    )
    with RunningBroker(listen={"kafka": "127.0.0.1:0"}, others=False, settings=settings) as broker:
        yield BenchRound(broker, round_.seconds, round_.counter), context


def kafka_produce(value_bytes: int, depth: int) -> Run:
    """The workload of `moving.kafka_produce`, over TLS."""

    def run(round_: BenchRound) -> BenchSample:
        with _encrypted(round_) as (own, context):
            return moving.kafka_produce(value_bytes, depth, NAME, context)(own)

    return run


def kafka_fetch(value_bytes: int) -> Run:
    """The workload of `moving.kafka_fetch`, over TLS."""

    def run(round_: BenchRound) -> BenchSample:
        with _encrypted(round_) as (own, context):
            return moving.kafka_fetch(value_bytes, moving.FETCH_BYTES, NAME, context)(own)

    return run
