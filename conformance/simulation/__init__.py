"""Long runs of the storage simulation, which the tests run in short."""
