"""Patterns of topic names as Pulsar's clients write them, in RE2's syntax: the time of a match is
bounded by the size of the name times that of the compiled pattern. Knows no client and no topic.

Without the library `google-re2` no pattern can be tried here, and clients poll instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec

from braidlog.broker.errors import NotSupported
from braidlog.protocols.pulsar.limits import (
    PATTERN_CHARACTERS_MAX,
    PATTERN_INSTRUCTIONS_MAX,
    PATTERN_MEMORY_BYTES_MAX,
)
from braidlog.protocols.pulsar.names import NON_PERSISTENT, PERSISTENT
from braidlog.storage.metadata.names import split_partition

ARE_SERVED = find_spec("re2") is not None
PIECE_S = 0.005  # How long names are tried before others have a turn.
_LOOK_AT_CLOCK = 16  # Names between looks: the worst accepted pattern needs 0.2 ms for a name.
_SCHEME = "://"


class TopicsPattern:
    """Says which topic names a client's pattern matches. As in Apache, a name is compared whole,
    without its domain, and a partition by the name of its topic.
    """

    def __init__(self, text: str) -> None:
        """Raises NotSupported for a pattern that is too long or that RE2 does not accept."""
        if not ARE_SERVED:
            raise NotSupported("Watching topics is not enabled.")
        if len(text) > PATTERN_CHARACTERS_MAX:
            too_long = f"Pattern longer than maximum: {PATTERN_CHARACTERS_MAX}"
            raise NotSupported(f"Unable to create topic list watcher: {too_long}")
        import re2  # 2 MB, for clients with patterns alone.

        self.text = _without_domain(text)
        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_BYTES_MAX
        options.never_capture = True
        options.log_errors = False
        try:
            compiled = re2.compile(self.text, options=options)
        except re2.error as error:
            raise NotSupported(
                f"Invalid topics pattern, or not RE2's: {error.args[0].decode()}"
            ) from error
        if compiled.programsize > PATTERN_INSTRUCTIONS_MAX:
            raise NotSupported("Pattern repeats too much")
        self._whole = compiled.fullmatch

    def matches(self, name: str) -> bool:
        """Return True if a name with its domain matches: the name of a topic or partition."""
        bare = name.removeprefix(PERSISTENT)
        split = split_partition(bare)
        return self._whole((split[0] if split else bare).encode()) is not None

    def pieces(self, names: Iterable[str]) -> Iterator[list[str]]:
        """The names that match, in pieces between which others may have their turn."""
        meant: list[str] = []
        until = time.monotonic() + PIECE_S
        for number, name in enumerate(names):
            if self.matches(name):
                meant.append(name)
            if number % _LOOK_AT_CLOCK == 0 and time.monotonic() >= until:
                yield meant
                meant = []
                until = time.monotonic() + PIECE_S
        yield meant


def _without_domain(text: str) -> str:
    """The pattern without `persistent://` or `non-persistent://`; a quote may stand before it."""
    head, scheme, rest = text.partition(_SCHEME)
    if not scheme:
        return text
    for domain in (NON_PERSISTENT, PERSISTENT):
        if (head + scheme).endswith(domain):
            return (head + scheme).removesuffix(domain) + rest
    raise NotSupported(f"Does not support topic domain: {head}")
