"""What tests/gpu/run tells of results as a GPU would give them."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import large_models  # pylint: disable=wrong-import-position
import peaks  # pylint: disable=wrong-import-position
import summary  # pylint: disable=wrong-import-position


class GoalsTest(unittest.TestCase):
    def goals_of(self, gpu, tokens, torch):
        rate = {"tok_per_s": tokens, "share_of_read_bandwidth": 0.85}
        results = {
            "bandwidth": {"name": gpu},
            "pytorch": {"bf16_tflops": 700.0},
            "llama8b": {"decode": {"1": rate}, "prompt_products": 7e9,
                        "prefill": {"tok_per_s": 20000.0}},
            "pytorch_llama8b": {"decode": {"1": {"tok_per_s": torch}}}}
        return {(what, goal): (seen, reached) for what, seen, goal, reached
                in large_models.goal_rows(results)}

    def test_goals_are_those_of_the_gpu(self):
        what = "llama8b: tok/s at batch 1"
        h200 = self.goals_of("NVIDIA H200", 205, 180)
        self.assertEqual(h200[what, 200], (205, True))
        self.assertEqual(h200[what, 229], (205, False))
        self.assertNotIn((what, 155), h200)
        h100 = self.goals_of("NVIDIA H100 80GB HBM3", 160, 180)
        self.assertEqual(h100[what, 155], (160, True))
        self.assertEqual(h100[what, 170], (160, False))
        other = self.goals_of("NVIDIA L4", 10, 10)
        self.assertEqual(other["llama8b: share of read bandwidth", 0.8],
                         (0.85, True))

    def test_speeds_stand_beside_those_of_pytorch(self):
        what = "llama8b: 1 streams, times PyTorch's"
        self.assertEqual(self.goals_of("NVIDIA H200", 220, 200)[what, 1.1],
                         (1.1, True))
        self.assertEqual(self.goals_of("NVIDIA H200", 210, 200)[what, 1.1],
                         (1.05, False))

    def test_a_prompt_is_held_against_the_measured_peak(self):
        seen, reached = self.goals_of("NVIDIA H200", 1, 1)[
            "llama8b: prompt of 2048, share of bf16_tflops", 0.5]
        self.assertAlmostEqual(seen, 2e-12 * 7e9 * 20000 / 700)
        self.assertFalse(reached)

    def test_the_larger_rate_is_the_measured_one(self):
        own = [{"op": "BF16, mma", "tflops": 600.0},
               {"op": "int8, mma", "tops": 1200.0},
               {"op": "BF16, wgmma", "tflops": 650.0},
               {"op": "BF16, none", "left_out": "not of sm_80"}]
        for torch, rate, of in ((700.0, 700.0, "PyTorch's products"),
                                (640.0, 650.0, "BF16, wgmma")):
            found = peaks.matrix_rates({
                "peaks": own, "pytorch": {"bf16_tflops": torch}})
            self.assertEqual(found["bf16_tflops"]["rate"], rate)
            self.assertEqual(found["bf16_tflops"]["of"], of)
            self.assertEqual(len(found["bf16_tflops"]["all"]), 3)
            self.assertEqual(found["int8_tops"], {
                "rate": 1200.0, "of": "int8, mma",
                "all": {"int8, mma": 1200.0}})
        self.assertEqual(peaks.matrix_rates({"peaks": {"skipped": "a CPU"}}), {})

    def test_a_prompt_of_every_model_has_its_share(self):
        model = {"decode": {}, "prompt_products": 7e9,
                 "prefill": {"tok_per_s": 20000.0}}
        launches = {"op": "launches", "blocks": 132, "launches": 200,
                    "eager_us": 2.5, "graph_us": 1.25,
                    "lists": {"1": {"us": 9.5, "host_us": 3.5}}}
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, \
                contextlib.redirect_stdout(said):
            out = pathlib.Path(folder)
            for part, found in {
                    "peaks": [{"op": "mma", "tflops": 560.0},
                              {"op": "bytes", "tops": 1120.0},
                              {"op": "wgmma", "left_out": "not of sm_80"},
                              launches],
                    "gptoss20b": model, "canonical_q4_k": model,
                    "llama70b_fp8": {"skipped": "no room"}}.items():
                (out / f"{part}.json").write_text(json.dumps(found))
            summary.write(out)
            found = json.loads((out / "all.json").read_text())
        self.assertEqual(found["gptoss20b"]["prefill"]["products_tflops"], 280)
        self.assertEqual(
            [found[name]["prefill"][key] for name in
             ("gptoss20b", "canonical_q4_k")
             for key in ("matrix_rate", "share_of_matrix_rate")],
            ["bf16_tflops", 0.5, "int8_tops", 0.25])
        self.assertEqual(found["matrix_rates"]["bf16_tflops"]["of"], "mma")
        self.assertIn("attention", found["matrix_rates"]["counted"])
        said = said.getvalue()
        self.assertRegex(said, r"bf16_tflops +560.00 TFLOP/s  mma: the measured")
        self.assertRegex(said, r"int8_tops +1120.00 TOP/s    bytes: the measured")
        self.assertIn("wgmma: not of sm_80", said)
        self.assertIn("launches (132): 2.50 us each, 1.25 us each of 200 in a "
                      "graph\n  a list of 1: 9.50 us, of which 3.50 until", said)
        self.assertRegex(said, r"gptoss20b +prompt .* 50.0 % of bf16_tflops")
        self.assertRegex(said, r"canonical_q4_k: prompt of 2048, share of "
                         r"int8_tops +0.250 +0.150 reached")
        self.assertRegex(said, r"llama8b: prompt of 2048, share of bf16_tflops "
                         r"+0.500 not measured")

    def test_the_picture_has_each_speed_and_pytorchs(self):
        draw = summary.picture.svg
        self.assertIsNone(draw({"machine": {}}))
        rate = {"tok_per_s": 220, "share_of_read_bandwidth": 0.75}
        root = xml.etree.ElementTree.fromstring(draw({
            "llama8b": {"decode": {"1": rate}},
            "llama1b": {"decode": {"1": rate}},
            "pytorch_llama8b": {"decode": {"1": {"tok_per_s": 110}}}}))
        space = "{http://www.w3.org/2000/svg}"
        of = {kind: [one for one in root.iter(space + "rect")
                     if one.get("class") == kind] for kind in ("ours", "torch")}
        self.assertEqual((len(of["ours"]), len(of["torch"])), (2, 1))
        # PyTorch's mark is at half the bar.
        bar, mark = of["ours"][1], of["torch"][0]
        self.assertAlmostEqual(
            float(mark.get("x")) + 2 - float(bar.get("x")),
            float(bar.get("width")) / 2, delta=0.2)

    def test_what_was_not_measured_is_not_reached(self):
        goals = self.goals_of("NVIDIA H200", 1, 1)
        self.assertEqual(goals["gptoss20b: tok/s at batch 1", 600],
                         (None, None))


if __name__ == "__main__":
    unittest.main()
