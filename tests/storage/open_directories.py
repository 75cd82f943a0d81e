"""Data directories that a test's kit opens and the test does not close: they are abandoned at the
end of the test, as a killed process leaves them. Each would hold some descriptors for ever.
"""

from braidlog.storage.directory.data_dir import DataDir

_opened: list[DataDir] = []


def open_directory(path) -> DataDir:
    """Open a data directory until the end of the test."""
    opened = DataDir.open(path)
    _opened.append(opened)
    return opened


def abandon_directories() -> None:
    """Abandon those that were opened; closing twice does no harm."""
    while _opened:
        _opened.pop().abandon()
