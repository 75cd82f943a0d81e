"""Memory for answers that are converted for their readers.

The memory is reused as soon as no view of an answer is left: the outbox copies the bytes that a
socket does not take. The kernel would clear and map each page of fresh memory, which took a third
of the time of a poll of 1 MB.
"""

from typing import Final

from braidlog.storage.log.read_buffers import ReadBuffers

ANSWER_MEMORY: Final = ReadBuffers()
