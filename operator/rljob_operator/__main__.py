"""`python -m rljob_operator`: the operator as a process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys

from kubernetes.aio.config import ConfigException

from rlcore.errors import UserError
from rljob_operator.logs import set_up_logging
from rljob_operator.service import serve
from rljob_operator.settings import load_settings


def main() -> None:
    """Runs the operator and exits with its code; 2 for settings or a cluster that cannot be used."""
    try:
        settings = load_settings()
        set_up_logging(settings.log_level, settings.log_format)
        gc.freeze()  # what is imported by now stays: no collection need look at it
        code = asyncio.Runner().run(serve(settings))
    except UserError as error:
        sys.exit(_complain(str(error)))
    except ConfigException as error:
        sys.exit(_complain(f"no cluster: {error}; run in a pod, or set KUBECONFIG"))
    logging.shutdown()
    os._exit(code)  # nothing is left to do, and what kopf left behind may never end


def _complain(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
