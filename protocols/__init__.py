"""The package `braidlog.protocols`. The name `protocols` would import modules twice."""

if __name__ != "braidlog.protocols":
    raise ImportError(f"{__name__} is imported as braidlog.protocols")
