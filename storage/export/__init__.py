"""The log as Spark sees it, read from a data directory, a broker or a shared store. Takes no lock
there and writes nothing.
"""
