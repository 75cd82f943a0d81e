"""The package `braidlog.broker`. The name `broker` would import modules twice."""

if __name__ != "braidlog.broker":
    raise ImportError(f"{__name__} is imported as braidlog.broker")
