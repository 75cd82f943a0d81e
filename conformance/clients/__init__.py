"""Clients of a broker: libraries, programs and frames made by hand.

`libraries.py` and `iggy.py` list the libraries with their versions and environments. A file for
each library (`base.py`) has the few actions that every library offers, in a neutral form. It runs
in its own process, in the environment of its library, and is called by JSON lines (`serve.py`,
`proxy.py`, `driver_processes.py`), so a case can use libraries that cannot share an environment.
`raw/` makes frames without a library; `http_api.py` runs schemathesis.
"""
