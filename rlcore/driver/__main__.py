"""`python -m rlcore.driver`: the entrypoint of a Ray job in a cluster."""

import sys

from rlcore.driver.cluster import main

if __name__ == "__main__":
    sys.exit(main())
