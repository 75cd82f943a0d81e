"""The 33 checks that any broker of Pulsar's protocol should pass, and their tests.

The tests run with this environment's client anyway. Here, the tests whose calls exist in an older
client also run with that client, in a separate process.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from conformance.clients.libraries import CLIENTS, ROOT, LibraryUnavailable, python_for

pytestmark = [pytest.mark.clients, pytest.mark.slow]

HERE: Final = Path(__file__).parent
OLDER: Final = CLIENTS["pulsar-client-31"]
RUN_S: Final = 300
CHECKS: Final = {
    "basic": "test_clients.py::test_basic",
    "latest default": "test_clients.py::test_latest_is_the_default",
    "durable resume": "test_clients.py::test_durable_resume",
    "batch + LZ4": "test_clients.py::test_every_compression_comes_back_in_order[LZ4-True]",
    "cumulative": "test_clients.py::test_cumulative",
    "batch index ack": "test_clients.py::test_batch_index_ack",
    "exclusive busy": "test_clients.py::test_exclusive_busy",
    "type conflict": "test_clients.py::test_type_conflict",
    "shared": "test_clients.py::test_shared",
    "failover": "test_kinds.py::test_failover",
    "key shared": "test_kinds.py::test_key_shared",
    "key shared sticky": "test_kinds.py::test_key_shared_sticky",
    "nack count": "test_clients.py::test_nack_count",
    "dead letter": "test_clients.py::test_dead_letter",
    "redeliver on close": "test_clients.py::test_redeliver_on_close",
    "seek by id": "test_positions.py::test_seek_by_id",
    "seek by time": "test_positions.py::test_seek_by_time",
    "reader": "test_positions.py::test_reader",
    "last id": "test_positions.py::test_last_id",
    "unsubscribe": "test_clients.py::test_unsubscribe",
    "pattern": "test_clients.py::test_pattern",
    "table view": "test_positions.py::test_table_view",
    "schema JSON": "test_positions.py::test_schema[JsonSchema]",
    "schema Avro": "test_positions.py::test_schema[AvroSchema]",
    "schema incompatible": "test_positions.py::test_schema_incompatible",
    "chunking": "test_clients.py::test_chunking",
    "exclusive producer": "test_clients.py::test_exclusive_producer",
    "fencing producer": "test_clients.py::test_fencing_producer",
    "producer name": "test_clients.py::test_producer_name",
    "delayed": "test_kinds.py::test_delayed",
    "non-persistent": "test_non_persistent.py::test_non_persistent_delivery",
    "several topics": "test_clients.py::test_several_topics",
    "almost 5 MiB": "test_clients.py::test_almost_5_mib",
}
# Calls, or arguments of calls, newer than client 3.1.
NOT_IN_OLDER: Final = {
    "batch index ack",
    "key shared sticky",
    "dead letter",
    "table view",
    "exclusive producer",
    "fencing producer",
}


def test_every_check_has_a_test() -> None:
    for check, test in CHECKS.items():
        file, _, rest = test.partition("::")
        name = rest.partition("[")[0]
        assert re.search(rf"^def {name}\(", (HERE / file).read_text(), re.MULTILINE), check
    assert len(CHECKS) == 33
    assert CHECKS.keys() > NOT_IN_OLDER


def test_an_older_client_passes_the_checks_of_its_calls() -> None:
    try:
        environment = python_for(OLDER).parent.parent
    except LibraryUnavailable as reason:
        pytest.skip(str(reason))
    (packages,) = environment.glob("lib/python*/site-packages")
    wanted = [f"{HERE / test}" for check, test in CHECKS.items() if check not in NOT_IN_OLDER]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *wanted],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(packages)},
        timeout=RUN_S,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    assert "skipped" not in ran.stdout, ran.stdout[-8000:]
