"""How fast the operators of `cbquant.deepseek` are, next to the machine's memory, NumPy and torch.

    python -m benchmarks.deepseek [--quick]

`cases` says what a case is, `elementwise` has those of operators that work element by element, each with the same in
NumPy and torch; `limits` measures next to memory, `peers` next to NumPy and torch, `attention` measures that and the
indexer next to the machine's limits, `topk` the choice of the largest next to others. All return rows, which are dicts
that JSON can hold; `targets` says what should hold; `tables` and `page` show a report; `command` is the command line.
"""
