"""The benchmark: limits of the machine and the broker's workloads in one run, as ratios."""
