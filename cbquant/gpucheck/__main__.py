"""``python -m cbquant.gpucheck``: the command of `cbquant.cli`."""

from __future__ import annotations

import sys

from cbquant.cli import main

if __name__ == "__main__":
    sys.exit(main(["gpucheck", *sys.argv[1:]]))
