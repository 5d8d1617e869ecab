"""That what machine_bench prints is understood."""

import contextlib
import io
import unittest

import machine


class MachineTest(unittest.TestCase):
    def test_the_machine_is_described(self):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            found = machine.describe("--threads", "1", "--megabytes", "8",
                                     "--passes", "1")
        self.assertTrue(found["cpu"])
        self.assertGreaterEqual(found["cores"], 1)
        self.assertGreater(found["read_gb_per_s"], 0)
        self.assertIn(f"{found['read_gb_per_s']} GB/s", shown.getvalue())

    def test_flags_of_arithmetic_are_kept(self):
        self.assertEqual(
            machine.parse("CPU: X, Y, 2 cores\nflags: fpu sse avx2 fma avx512f"
                          "\nread bandwidth: 31.25 GB/s, 2 threads, best of 7 "
                          "passes over 512 MiB\n"),
            {"cpu": "X, Y", "cores": 2,
             "cpu_flags": ["avx2", "fma", "avx512f"],
             "read_gb_per_s": 31.25})

    def test_other_texts_are_refused(self):
        for text in ("", "CPU: X, 2 cores\nflags: fma\n",
                     "CPU: X, 2 cores\nread bandwidth: 1 GB/s, \n"):
            with self.assertRaises(ValueError):
                machine.parse(text)


if __name__ == "__main__":
    unittest.main()
