"""The benchmarks, each measured beside its floor in one run."""
