"""Where the recipe of the demo model lies, and its packages."""

import importlib.util
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "demo_model"
WEIGHTS = FOLDER / "weights"
sys.path.insert(0, str(FOLDER))

SKIPPED = 77


def main(*packages):
    """Runs the tests of the calling script; ends with 77, and says why, where
    a package is missing."""
    missing = [name for name in packages
               if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: needs {', '.join(missing)} (pip install -r "
              "deploy/demo_model/requirements.txt)")
        sys.exit(SKIPPED)
    unittest.main()
