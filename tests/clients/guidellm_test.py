"""guidellm, unmodified: a short run against a live cluster (long mode)."""

import json
import pathlib
import tempfile
import unittest

from client_cluster import ClientCluster, only_in_long_mode, run_client, skip
import harness

only_in_long_mode("guidellm")
try:
    import guidellm  # noqa: F401
except ImportError as error:
    skip(f"needs build/venv-evals (tests/run --long makes it): {error}")

PROGRAM = harness.ROOT / "build" / "venv-evals" / "bin" / "guidellm"
