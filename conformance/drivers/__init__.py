"""A file for each client library: the few actions that every library offers, in a neutral form.

A driver runs in its own process, in the environment of its library, and is called by JSON lines
(`serve.py`, `proxy.py`). So a case can use libraries that cannot share an environment.
"""
