"""The package `braidlog.storage`. The name `storage` would import modules twice."""

if __name__ != "braidlog.storage":
    raise ImportError(f"{__name__} is imported as braidlog.storage")
