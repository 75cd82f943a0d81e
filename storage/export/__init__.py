"""The log as a Spark data set, read from a data directory, a broker or a shared store.

Takes no lock there and writes nothing.
"""
