"""run_changed.py on the build that runs this test, by tests that every such build
has."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run_changed  # noqa: E402


class ReachTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tests = run_changed.all_tests()

    def reach(self, *files):
        for name in files:
            self.assertTrue((run_changed.ROOT / name).exists(), name)
        return [{test[0] for test in ring}
                for ring in run_changed.choose(files, self.tests)]

    def test_a_source_reaches_its_rooms_tests_first(self):
        near, others, clusters = self.reach("common/sampling/philox.cc")
        self.assertIn("sampling_test", near)
        self.assertIn("model_golden_test", others)
        self.assertIn("integration_failure", clusters)
        self.assertNotIn("text_memory_test", near | others | clusters)
        self.assertNotIn("kernels_matmul_test", near | others | clusters)

    def test_a_room_of_the_tools_is_one_by_itself(self):
        room = run_changed.room("common/tools/hub/pull.cc")
        self.assertEqual(run_changed.room("tests/tools/hub/hub_test.cc"), room)
        self.assertNotEqual(run_changed.room("tests/tools/load/x.cc"), room)

    def test_a_header_reaches_what_reads_it(self):
        near, others, clusters = self.reach("common/base/status.h")
        self.assertIn("base_memory_test", near)
        self.assertIn("model_golden_test", others)
        self.assertIn("clients_curl", clusters)

    def test_a_module_reaches_what_imports_it(self):
        near, others, clusters = self.reach("tests/integration/harness.py")
        self.assertIn("integration_failure", clusters)
        self.assertNotIn("sampling_test", near | others)

    def test_a_file_of_no_graph_reaches_what_names_it(self):
        near, others, clusters = self.reach("tests/testing/make_model.py")
        self.assertIn("model_sparse_pattern_test", others)
        near, others, clusters = self.reach("common/engine/README.md")
        self.assertIn("lint_words", near)
        self.assertEqual(others | clusters, set())

    def test_a_golden_model_reaches_what_reads_golden_models(self):
        near, others, clusters = self.reach("tests/golden/recipes/qwen3.json")
        self.assertIn("golden_make", near)
        self.assertIn("model_golden_test", others)
        self.assertIn("integration_golden", clusters)
        self.assertNotIn("sampling_test", near | others)

    def test_how_it_is_built_reaches_all(self):
        self.assertEqual(set().union(*self.reach("CMakeLists.txt")),
                         {test[0] for test in self.tests})


if __name__ == "__main__":
    unittest.main()
