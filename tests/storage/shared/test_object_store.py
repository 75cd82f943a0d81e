"""The contract of every object store: the store in memory, a folder, and S3 by SeaweedFS."""

import pytest

from braidlog.storage.errors import StoreUnanswered
from braidlog.storage.shared.layout import BadObject
from braidlog.storage.shared.object_store import ObjectExists, ObjectMissing
from conformance.cluster.servers import BUCKET
from tests.storage.shared.memory import MemoryStore


@pytest.fixture(params=["memory", "folder", pytest.param("s3", marks=pytest.mark.slow)])
def objects(request, tmp_path):
    if request.param == "memory":
        return MemoryStore()
    obstore = pytest.importorskip(
        "braidlog.storage.shared.obstore", reason="the extra is not installed"
    )
    if request.param == "folder":
        return obstore.ObstoreObjects(f"file://{tmp_path}/objects", timeout_ms=10_000)
    seaweed = request.getfixturevalue("seaweed")
    address = f"s3://{BUCKET}/{tmp_path.name}"
    return obstore.ObstoreObjects(address, seaweed.endpoint, timeout_ms=10_000)


def test_an_object_is_created_once_and_read_in_ranges(objects):
    objects.put("rounds/1/7.0", b"0123456789")
    with pytest.raises(ObjectExists):
        objects.put("rounds/1/7.0", b"other")
    assert objects.get("rounds/1/7.0", 0, 10) == b"0123456789"
    assert objects.get("rounds/1/7.0", 3, 4) == b"3456"
    assert objects.get("rounds/1/7.0", 3, 0) == b""
    assert objects.size("rounds/1/7.0") == 10


def test_a_range_beyond_the_end_is_an_error(objects):
    objects.put("packs/1/1-1", b"0123456789")
    for pos, size in ((5, 6), (10, 1), (20, 5)):
        with pytest.raises(BadObject):
            objects.get("packs/1/1-1", pos, size)


def test_a_missing_object_raises_its_error(objects):
    with pytest.raises(ObjectMissing):
        objects.get("rounds/1/7.0", 0, 1)
    with pytest.raises(ObjectMissing):
        objects.size("rounds/1/7.0")
    objects.delete("rounds/1/7.0")


def test_names_of_a_prefix_and_removal(objects):
    for name in ("rounds/1/1.0", "rounds/1/2.0", "rounds/11/1.0", "packs/1/1-1"):
        objects.put(name, b"x")
    assert sorted(objects.names("rounds/1/")) == ["rounds/1/1.0", "rounds/1/2.0"]
    assert len(list(objects.names("rounds/"))) == 3
    objects.delete("rounds/1/1.0")
    assert list(objects.names("rounds/1/")) == ["rounds/1/2.0"]
    objects.put("rounds/1/1.0", b"again")


def test_a_missing_store_gives_no_answer(tmp_path):
    obstore = pytest.importorskip(
        "braidlog.storage.shared.obstore", reason="the extra is not installed"
    )
    objects = obstore.ObstoreObjects("s3://none/here", "http://127.0.0.1:1", timeout_ms=2_000)
    for call in (
        lambda: objects.put("a", b"x"),
        lambda: objects.get("a", 0, 1),
        lambda: objects.size("a"),
        lambda: objects.delete("a"),
        lambda: list(objects.names("a/")),
    ):
        with pytest.raises(StoreUnanswered):
            call()


def test_an_invalid_address_is_refused():
    obstore = pytest.importorskip(
        "braidlog.storage.shared.obstore", reason="the extra is not installed"
    )
    for address in ("", "s3://", "ftp://x/y", "bucket"):
        with pytest.raises(obstore.StoreSetting):
            obstore.ObstoreObjects(address, timeout_ms=1000)
