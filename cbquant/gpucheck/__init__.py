"""Prove cbquant.cuda on a GPU, in one command: ``python -m cbquant.gpucheck [--out DIR]``.

Not yet run on a GPU: its parts that need none are tested, those for numbers with the kernels on the CPU.

Each section runs in a process of its own, which a kernel may break or hang, and writes down what it does, item by item:
`_sections` starts them, `_worker` is what they run, `_items` what an item is. `_report` puts it all together.
"""

from __future__ import annotations
