"""Quantizes a file on a Dask cluster of two processes, one of which is killed while it is at work.

python -m tests.convert_dask SRC DST
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys

import numpy as np
from distributed import Client, LocalCluster

from cbquant.convert import _quantize, quantize_file
from tests import convert_files as cf


def main(src: str, dst: str) -> None:
    _quantize.PIECE_ELEMENTS = 64 * 4
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options, silence_logs=logging.CRITICAL) as cluster, Client(cluster) as client:
        workers = client.run(os.getpid)
        killed: list[int] = []

        def kill_one(done: int, total: int, name: str) -> None:
            if not killed and 4 * done > total:
                killed.append(next(iter(workers.values())))
                os.kill(killed[0], signal.SIGKILL)

        with client.get_executor() as executor:
            report = quantize_file(
                src, dst, "q4_0", imatrix={cf.V: np.arange(64)}, executor=executor, progress=kill_one, in_flight=12
            )
        print(json.dumps({"killed": killed, "workers": list(workers.values()), "resumed": report.resumed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
