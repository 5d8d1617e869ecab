"""The committed boards are what deploy/monitoring/dashboards makes, and what
Grafana's Foundation SDK reads."""

import json
import subprocess
import sys
import unittest

import series

try:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models import dashboard
except ImportError as error:
    print(f"skipped: needs grafana-foundation-sdk ({error}), which tests/run "
          "puts into build/venv")
    sys.exit(77)

# What the SDK's schema gives to a panel's kind.
KINDS = {"timeseries", "stat", "heatmap", "state-timeline", "row"}


class BoardsTest(unittest.TestCase):
    def test_the_committed_boards_are_what_the_code_makes(self):
        done = subprocess.run(
            [sys.executable, "-B", str(series.FOLDER / "dashboards"),
             "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_sdk_reads_them_and_writes_the_same(self):
        register_default_plugins()
        for name, board in series.boards().items():
            read = dashboard.Dashboard.from_json(board)
            again = json.loads(JSONEncoder().encode(read))
            self.assertEqual(again, board, name)

    def test_panels_lie_on_the_grid_and_do_not_overlap(self):
        for name, board in series.boards().items():
            taken = {}
            for panel in board["panels"]:
                self.assertIn(panel["type"], KINDS)
                at = panel["gridPos"]
                x, y = at.get("x", 0), at.get("y", 0)
                self.assertLessEqual(x + at["w"], 24, panel["title"])
                for cell in ((x + dx, y + dy) for dx in range(at["w"])
                             for dy in range(at["h"])):
                    self.assertNotIn(cell, taken, f"{name}: {panel['title']} "
                                     f"lies on {taken.get(cell)}")
                    taken[cell] = panel["title"]


if __name__ == "__main__":
    unittest.main()
