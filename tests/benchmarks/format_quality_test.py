"""format_quality.py: texts, files of other types, the table."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

import format_quality as quality

MAKE_GGUF = quality.ROOT / "tests/testing/make_gguf.py"


class Texts(unittest.TestCase):
    def test_the_text_is_long_enough_and_always_the_same(self):
        text = quality.held_out_text()
        self.assertGreaterEqual(len(text.encode()), 50_000)
        self.assertTrue(text.startswith(quality.held_out_text(100)))
        with self.assertRaises(SystemExit):
            quality.held_out_text(1 << 40)


class Tables(unittest.TestCase):
    def test_every_format_has_a_line(self):
        row = {"format": "Q4_0", "made": "--weights", "weights": "Q8_0+Q4_0",
               "weights_bytes": 91_000_000, "mean_error": 0.5,
               "max_error": 4.0, "kl": 0.03, "top1_agreement": 0.91,
               "perplexity": 12.5}
        shown = quality.table([row, {**row, "chat_agreement": 0.875}])
        first, second = shown.splitlines()[1:]
        self.assertIn("0.9100  12.500      -", first)
        self.assertIn("0.875", second)


@unittest.skipUnless(importlib.util.find_spec("gguf"), "needs gguf and numpy")
class Files(unittest.TestCase):
    def test_matrices_change_their_type_and_keep_their_values(self):
        import gguf
        import numpy
        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(folder)
            subprocess.run([sys.executable, MAKE_GGUF, "--type", "Q4_0",
                            "--out", at / "a.gguf"], check=True)
            quality.rewrite(at / "a.gguf", at / "f32.gguf", "F32")
            quality.rewrite(at / "f32.gguf", at / "q8.gguf", "Q8_0")
            stored, wide, narrow = (
                gguf.GGUFReader(at / name)
                for name in ("a.gguf", "f32.gguf", "q8.gguf"))
            self.assertEqual(set(stored.fields), set(narrow.fields))
            for one, two, three in zip(stored.tensors, wide.tensors,
                                       narrow.tensors):
                values = gguf.quants.dequantize(one.data, one.tensor_type)
                self.assertTrue(numpy.array_equal(values, two.data))
                vector = two.data.ndim == 1
                self.assertEqual(three.tensor_type.name,
                                 "F32" if vector else "Q8_0")
                near = gguf.quants.dequantize(three.data, three.tensor_type)
                self.assertLess(numpy.abs(near - values).max(),
                                numpy.abs(values).max() / 100 + 1e-9)


if __name__ == "__main__":
    unittest.main()
