import sys

from benchmarks.deepseek.command import main

sys.exit(main())
