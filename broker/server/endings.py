"""How a connection ends from its own side: the errors that sessions, and the machines below them,
raise. Imports nothing, so that the sans-I/O parts of a protocol may use it.
"""


class EndConnection(Exception):
    """This connection is over, without fault: what was answered before still leaves, then `reply`,
    then the end.
    """

    def __init__(self, reason: str, reply: bytes = b"", *, hint: str = "") -> None:
        """`hint` tells an operator what is behind it and what helps: a constant, never a client's
        text, for lines of one hint are counted together.
        """
        super().__init__(reason)
        self.reason = reason
        self.reply = reply
        self.hint = hint


class ProtocolError(EndConnection):
    """The peer broke the rules of its protocol. The driver sends `reply` (whole frames) and ends
    the connection.
    """
