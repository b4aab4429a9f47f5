import os
import sys

# NumPy's BLAS reads it when it is loaded: after a call its threads turn for 2^20 cycles. The usual 2^26 are longer than
# a sample of the next candidate.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

from benchmarks.matmul.command import main

sys.exit(main())
