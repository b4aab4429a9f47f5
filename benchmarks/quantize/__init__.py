"""How fast rows of numbers are encoded, next to ggml.

    python -m benchmarks.quantize [--quick]

`inputs` is what is encoded; `encoders` are cbquant's and ggml's; `speed`, `threads` and `first_call` measure and return
rows, which are dicts that JSON can hold; `targets` says what should hold; `tables` and `page` show a report; `command`
is the command line.
"""
