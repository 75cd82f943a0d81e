"""Errors that end a connection, raised by sessions and by the machines below sessions. Imports
nothing, so that the sans-I/O parts of a protocol may use this module.
"""


class EndConnection(Exception):
    """End this connection without a fault: earlier answers are sent, then `reply`, then the
    connection is closed.
    """

    def __init__(self, reason: str, reply: bytes = b"", *, hint: str = "") -> None:
        """Take `hint`, the cause and the remedy for an operator. A hint is a constant, never a
        client's text: log lines with the same hint are counted together.
        """
        super().__init__(reason)
        self.reason = reason
        self.reply = reply
        self.hint = hint


class ProtocolError(EndConnection):
    """The peer broke the rules of the protocol. The driver sends `reply` (whole frames) and ends
    the connection.
    """
