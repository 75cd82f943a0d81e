"""What strangers may send: mutated frames, bombs, half frames, peers that never read, floods. The
same judge looks at the broker before and after each.
"""
