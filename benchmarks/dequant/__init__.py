"""How fast blocks are decoded, against the machine's own limits and against other decoders.

    python -m benchmarks.dequant [--quick]

`memory`, `cache` and `peers` measure and return rows, which are dicts that JSON can hold; `targets` says what should
hold; `tables`, `page` and `plot` show a report; `command` is the command line.
"""
