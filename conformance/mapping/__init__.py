"""The views of a protocol's readers on another protocol's records: written rules,
and their page.
"""
