"""Hostile input: mutated frames, bombs, half frames, peers that never read, floods. The same judge
checks the broker before and after each attack.
"""
