"""How fast codecs and planes are, next to the machine's limits and to other libraries.

    python -m benchmarks.planes [--quick]

`cases` is what is decoded and multiplied with; `memory`, `codecs`, `peers`, `products` and `encode` measure and return
rows, which are dicts that JSON can hold; `numpy_encoders` is what `encode` compares with; `optional` says which peers
are installed; `targets` says what should hold; `tables` and `page` show a report; `command` is the command line.
"""
