"""What cached files do not do: be sent while the cache may empty them."""

from storage.shared.cached_file import Cache, CachedFiles
from tests.storage.shared.memory import MemoryStore


def test_no_answer_is_sent_from_a_cached_file(tmp_path):
    files = CachedFiles(tmp_path, MemoryStore(), Cache(1 << 20))
    assert not files.leases.offers(files.create(f"{tmp_path}/file"))
