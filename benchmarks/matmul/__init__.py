"""How fast products with compressed weights are, against other libraries and against the machine's limits.

    python -m benchmarks.matmul [--quick | --full]

`weights` is what is multiplied with; `ggml`, `dense` and `torch_linear` are the peers, which `peers` lists; `products`
measures and returns rows, which are dicts that JSON can hold; `ratios` compares them and `targets` says what should
hold; `tables` and `page` show a report; `command` is the command line.
"""
