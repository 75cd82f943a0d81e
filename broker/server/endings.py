"""How a connection ends from its own side: the errors that sessions, and the machines below them,
raise. Imports nothing, so that the sans-I/O parts of a protocol may use it.
"""


class EndConnection(Exception):
    """End this connection without a fault: answers given before are still sent, then `reply`, then
    it is closed.
    """

    def __init__(self, reason: str, reply: bytes = b"", *, hint: str = "") -> None:
        """`hint` tells an operator the cause and the remedy. It is a constant, never a client's
        text: log lines with the same hint are counted together.
        """
        super().__init__(reason)
        self.reason = reason
        self.reply = reply
        self.hint = hint


class ProtocolError(EndConnection):
    """The peer broke the rules of its protocol. The driver sends `reply` (whole frames) and ends
    the connection.
    """
