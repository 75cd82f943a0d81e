"""A whole broker without its listeners on a simulated disk: power losses, damage, failing calls.

Unlike the rest of `conformance/`, the simulation sees the broker from inside: its question is the
effect of each disk call. The tests are short runs, `python -m conformance.simulation` a long run.
"""
