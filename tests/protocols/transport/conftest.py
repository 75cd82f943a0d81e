"""The fixtures of the HTTP listener, whose connections are those of the transport."""

from tests.protocols.http.conftest import counted, listener

__all__ = ["counted", "listener"]
