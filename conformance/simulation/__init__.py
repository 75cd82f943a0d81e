"""A whole broker without its listeners on a simulated disk: power losses, damage, failing calls.

Unlike the rest of `conformance/` it sees the broker from inside: what a disk call does to it is the
question. The tests run it in short, `python -m conformance.simulation` in long.
"""
