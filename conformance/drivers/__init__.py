"""One file for each client library: the few things that every library can do, in one neutral form.

A driver runs in a process of its own, in the environment of its library, and is spoken to in JSON
lines (`serve.py`, `proxy.py`), so that libraries that cannot share an environment can still meet in
one case.
"""
