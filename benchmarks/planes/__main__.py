import sys

from benchmarks.planes.command import main

sys.exit(main())
