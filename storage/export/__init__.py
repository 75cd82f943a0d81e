"""The log as a Spark data set, from a directory, a broker or a store, only read."""
