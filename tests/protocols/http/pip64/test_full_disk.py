"""Produce over HTTP on a full disk."""

import errno

import pytest

from tests.protocols.http.pip64.conftest import BASE
from tests.protocols.http.pip64.test_produce import total
from tests.storage.files_twins import FailingDisk

SHIPPED = BASE.replace("/topics/", "/topics/persistent/")
BOTH = {"messages": [{"value": "a", "partition": 0}, {"value": "b", "partition": 1}]}


@pytest.fixture
def disk(broker, orders):
    """Return the disk under the broker."""
    disk = broker._storage.files.disk = FailingDisk()
    return disk


@pytest.mark.parametrize("path", [BASE, SHIPPED, f"{BASE}/partitions/1"])
async def test_a_full_disk_is_unavailable(disk, orders, ask, path):
    disk.fail("write", errno.ENOSPC)
    body = BOTH if path != f"{BASE}/partitions/1" else {"messages": [{"value": "a"}]}
    answer = await ask("POST", path, body)
    assert (answer.status, answer.json["code"]) == (503, "storage_full")
    assert answer.headers["retry-after"] == "1"
    assert total(orders) == 0
    disk.heal()
    assert (await ask("POST", path, body)).status == 200


async def test_stored_and_refused_messages_share_an_answer(disk, orders, ask):
    disk.fail("write", errno.ENOSPC, under=orders.partitions[1].log.folder)
    answer = await ask("POST", BASE, BOTH)
    assert answer.status == 200, answer.body
    first, second = answer.json["messageIds"]
    assert first["error_code"] is None and first["messageId"]
    assert (second["error_code"], second["messageId"]) == (2, None)
    assert total(orders) == 1


async def test_another_reason_is_reported_per_message(disk, broker, orders, ask):
    await broker.topics.terminate(orders.name)
    disk.fail("write", errno.ENOSPC)
    answer = await ask("POST", BASE, BOTH)
    assert [result["error_code"] for result in answer.json["messageIds"]] == [1, 1]
