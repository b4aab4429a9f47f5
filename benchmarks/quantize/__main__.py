import sys

from benchmarks.quantize.command import main

sys.exit(main())
