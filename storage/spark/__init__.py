"""The log as Spark sees it. Reads segment files beside a broker, takes no lock, writes nothing
there.
"""
