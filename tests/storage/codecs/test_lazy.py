"""A module that is imported in a thread: nobody waits for it, and it may be missing."""

from storage.codecs.lazy import LazyModule


def test_a_module_comes_once_it_is_imported():
    lazy = LazyModule("storage.codecs.varints")
    assert lazy.wait() is lazy.get()
    assert lazy.get().__name__ == "storage.codecs.varints"


def test_one_that_is_missing_never_comes():
    lazy = LazyModule("storage.codecs.no_such_module")
    assert (lazy.get(), lazy.wait(), lazy.get()) == (None, None, None)
