"""Benchmarks, each run from the root of the repository as ``python -m benchmarks.NAME``: see README.md."""
