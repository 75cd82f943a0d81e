"""Fixtures of the broker's own tests."""

import sys

import pytest


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Yield a function that installs entry points of a package in a folder on the path, from their
    text.
    """

    def install(module, entry_point):
        (tmp_path / "strange_listener.py").write_text(module)
        info = tmp_path / "strange-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[braidlog.protocols]\n{entry_point}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "strange_listener", raising=False)

    return install
