import sys

from benchmarks.dequant.command import main

sys.exit(main())
