"""Bulk over TLS beside plain sockets: the broker's cost of encryption.

The workloads start a separate broker, so that OpenSSL's memory does not count for the other
workloads.
"""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from conformance.bench import kafka_load
from conformance.bench.moving import FETCH_BYTES, fill_kafka
from conformance.bench.sample import MB, Round, Sample, again_and_again, timed
from conformance.server import RunningBroker

Run = Callable[[Round], Sample]
NAME = "kafka-tls"  # The listener beside the plain one.


@contextmanager
def _encrypted(round_: Round) -> Iterator[tuple[Round, ssl.SSLContext]]:
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
        yield Round(broker, round_.seconds, round_.counter), context


def kafka_produce(value_bytes: int, depth: int) -> Run:
    """The workload of `moving.kafka_produce`, over TLS."""

    def run(round_: Round) -> Sample:
        body, count = kafka_load.set_of_128k(value_bytes)
        topic = round_.topic()
        with _encrypted(round_) as (own, context):
            address = own.address(NAME)

            def work() -> int:
                return count * kafka_load.pipelined_produce(
                    address, topic, [body], own.seconds, depth, context
                )

            return timed(own, Sample(0, "MB/s", "D"), work, len(body) / count / MB)

    return run


def kafka_fetch(value_bytes: int) -> Run:
    """The workload of `moving.kafka_fetch`, over TLS."""

    def run(round_: Round) -> Sample:
        with _encrypted(round_) as (own, context):
            topic, log_end, step = fill_kafka(own, value_bytes, 40)
            address = own.address(NAME)

            def work() -> int:
                taken = kafka_load.fetch_all(address, topic, log_end, step, FETCH_BYTES, context)
                return taken // step

            sample = Sample(0, "MB/s", "L")
            return timed(own, sample, again_and_again(own, work), step / MB)

    return run
