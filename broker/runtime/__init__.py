"""The machinery below the tasks: event loop, sockets, buffers, threads, garbage collection.

trio wakes a task for each ready socket. That costs as much as a small request, so a poller serves
all ready sockets in plain calls (`poller.py`), in place of trio's own wait (`loop_clock.py`).
Buffers in and out are shared and have a budget (`receive_buffer.py`, `outbox.py`,
`output_budget.py`); functions that seldom wait are written as steps (`steps.py`); collections of
garbage are bounded (`garbage.py`), and free memory is returned (`heap.py`). `plain.py` turns this
off: the broker then runs on trio alone, slower, with the same answers.
"""
