"""The benchmark: limits of the machine and the broker's workloads in the same run, as ratios."""
