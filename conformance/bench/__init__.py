"""The benchmark: limits of the machine and workloads of the broker in the same run, told as
ratios."""
