"""`python -m tests.kube`: a cluster to play with; prints its kubeconfig's path, and goes with Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.kube import binaries
from tests.kube.cluster import Cluster


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kube", description=__doc__)
    parser.add_argument("--workdir", type=Path, help="a folder for keys, logs and kubeconfig (default: a new one)")
    parser.add_argument("--no-kuberay", action="store_true", help="leave RayCluster and RayJob out")
    options = parser.parse_args()
    if trouble := binaries.why_not():
        print(trouble, file=sys.stderr)
        return 1
    # An exception, so that a cluster that is only half started is stopped as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Cluster(options.workdir, kuberay=not options.no_kuberay) as cluster:
            print(cluster.kubeconfig, flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
