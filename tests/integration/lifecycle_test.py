"""Starting, stopping, draining and looking at clusters."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import threading
import time
import unittest

import api
import harness
import metrics_page


def model():
    return harness.golden("stories")


def generate(url, count=4):
    answer = api.completion(url, [1, 403], max_tokens=count, temperature=0,
                            return_token_ids=True)
    return api.choice_of(answer)["token_ids"]


class LifecycleTest(unittest.TestCase):
    def test_two_clusters_run_side_by_side(self):
        with harness.Cluster(model()) as first, \
                harness.Cluster(model(), "--stages", "3") as second:
            self.assertNotEqual(first.url, second.url)
            self.assertEqual(generate(first.url), generate(second.url))
            self.assertEqual(first.down(), 0)
            self.assertEqual(api.try_get(first.url, "/livez")[0], 0)
            self.assertEqual(len(generate(second.url)), 4)
            self.assertEqual(first.down(), 0)  # again: nothing to do

    def test_cluster_json_tells_of_every_process(self):
        with harness.Cluster(model(), "--ranks", "2") as cluster:
            document = cluster.file
            self.assertEqual([(p["role"], p["index"])
                              for p in document["processes"]],
                             [("stage", 0), ("stage", 1), ("gateway", 0)])
            for entry in document["processes"]:
                raw = pathlib.Path(f"/proc/{entry['pid']}/cmdline")
                self.assertEqual(raw.read_bytes().decode().split("\0")[:-1],
                                 entry["argv"])
                self.assertTrue(os.path.exists(entry["log"]))
                self.assertIsInstance(entry["environment"], dict)

    def test_up_prints_the_url_a_curl_line_and_an_answer(self):
        with harness.Cluster(model()) as cluster:
            self.assertIn(cluster.url, cluster.up.stdout)
            self.assertIn("curl " + cluster.url, cluster.up.stdout)
            self.assertRegex(cluster.up.stdout, r"answer: \S")
            self.assertNotIn("no answer", cluster.up.stdout)
            # The line, as it was printed, gives the answer that was printed.
            line = next(one for one in cluster.up.stdout.splitlines()
                        if one.strip().startswith("curl "))
            said = json.loads(subprocess.run(
                shlex.split(line), capture_output=True, text=True, timeout=60,
                check=True).stdout)["choices"][0]
            self.assertIn(said["text"].strip(), cluster.up.stdout)

    def test_a_second_cluster_in_the_folder_is_refused(self):
        with harness.Cluster(model()) as cluster:
            done = subprocess.run(
                [harness.ROOT / "deploy/local/up", "--model", model(),
                 "--run-dir", cluster.run_dir, "--detach"],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 7)
            self.assertIn(cluster.url, done.stderr)

    def test_sigterm_lets_a_stream_end(self):
        with harness.Cluster(model()) as cluster:
            outcome, started = [], threading.Event()

            def run():
                outcome.append(api.stream(
                    cluster.url, "/v1/completions",
                    {"prompt": [1], "max_tokens": 300, "temperature": 0,
                     "ignore_eos": True},
                    on_event=lambda event: started.set()))

            thread = threading.Thread(target=run)
            thread.start()
            self.assertTrue(started.wait(30))
            self.assertEqual(cluster.down(), 0)
            thread.join(30)
            status, events = outcome[0]
            self.assertEqual((status, events[-1]), (200, "[DONE]"))
            finishes = [json.loads(event)["choices"][0]["finish_reason"]
                        for event in events[:-1]
                        if json.loads(event).get("choices")]
            self.assertEqual(finishes[-1], "length")

    def test_ctrl_c_drains_and_stops_a_cluster_in_the_foreground(self):
        with harness.tempfile.TemporaryDirectory() as run_dir:
            process = subprocess.Popen(
                [harness.ROOT / "deploy/local/up", "--model", model(),
                 "--run-dir", run_dir, "--port", "0"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True)
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith("Ctrl-C"):
                    break
            os.killpg(process.pid, signal.SIGINT)
            lines += process.stdout.readlines()
            process.stdout.close()
            self.assertEqual(process.wait(60), 0, "".join(lines))
            self.assertFalse(os.path.exists(run_dir + "/cluster.json"))

    def test_layers_are_split_by_hand_or_by_the_stages_memory(self):
        def layers(*options):
            with harness.Cluster(model(), *options) as cluster:
                stages = [re.search(r'sluice_stage_[^\n]*stage="(\d+-\d+)"',
                                    api.get("http://" + p["metrics_address"],
                                            "/metrics")[1]).group(1)
                          for p in cluster.file["processes"]
                          if p["role"] == "stage"]
                return stages, generate(cluster.url)
        by_hand, tokens = layers("--layers", "0-0,1-4")
        self.assertEqual(by_hand, ["0-0", "1-4"])
        by_memory, same = layers("--stage-memory", "1G,4G")
        self.assertEqual(by_memory, ["0-0", "1-4"])
        self.assertEqual(same, tokens)

    def test_exit_codes_tell_what_went_wrong(self):
        for code, options in ((2, ["--stages", "0"]),
                              (2, ["--layers", "0-1"]),
                              (2, ["--layers", "0-1,2"]),
                              (2, ["--layers", "0-1,3-4"]),
                              (2, ["--layers", "1-2,3-4"]),
                              (2, ["--layers", "0-1,2-1"]),
                              (2, ["--stage-memory", "1G"]),
                              (2, ["--layers", "0-1,2-4", "--stage-memory",
                                   "1G,1G"]),
                              (2, ["--device", "gpu"]),
                              (2, ["--device", "cpu,cpu,cpu"]),
                              (2, ["--numerics", "fast"]),
                              (2, ["--no-such-option"]),
                              (5, ["--model", "/no/such/model"]),
                              (6, ["--model", model(), "--stages", "9"])):
            with self.subTest(options=options), \
                    harness.tempfile.TemporaryDirectory() as run_dir:
                done = subprocess.run(
                    [harness.ROOT / "deploy/local/up", "--detach",
                     "--run-dir", run_dir, "--port", "0", *options],
                    capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, code, done.stderr)

    def test_a_stage_refuses_parts_of_a_split_that_it_does_not_make(self):
        stage = os.path.join(os.environ["SLUICE_BUILD_DIR"],
                             "services/stage/sluice-stage")
        for options, words in (
                (["--stage-index", "1", "--num-stages", "3"],
                 "--stage-index and --num-stages go with --layers auto"),
                (["--num-stages", "2", "--layers", "0-1"],
                 "--layers has 1 ranges: --num-stages must be as many, got 2"),
                (["--stage-memory", "1G", "--layers", "0-1"],
                 "--stage-memory goes with --layers auto")):
            done = subprocess.run([stage, "--model", model(), *options],
                                  capture_output=True, text=True, timeout=60,
                                  check=False)
            self.assertEqual(done.returncode, 1, options)
            self.assertIn(words, done.stderr)

    def test_a_gpu_that_is_not_there_is_an_error_at_the_start(self):
        build = os.environ["SLUICE_BUILD_DIR"]
        for binary in ("stage/sluice-stage", "expert/sluice-expert"):
            for device, words in (
                    ("gpu", "--device: the device must be auto, cpu, cuda or "
                     "cuda:G[,G...] with numbers or ids of GPUs (0, "
                     "GPU-1b2c3d4e), got 'gpu'"),
                    # No machine has so many.
                    ("cuda:4711", "--device: device cuda:4711: ")):
                done = subprocess.run(
                    [os.path.join(build, "services", binary), "--model",
                     model(), "--device", device], capture_output=True,
                    text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(words, done.stderr)

    def test_fast_numerics_are_refused_on_a_cpu(self):
        build = os.environ["SLUICE_BUILD_DIR"]
        for binary in ("stage/sluice-stage", "expert/sluice-expert"):
            for numerics, words in (
                    ("fast", "--numerics: numerics 'fast' are those of a GPU's "
                     "matrix units: a CPU has canonical ones alone"),
                    ("quick", "--numerics: the numerics must be auto, fast or "
                     "canonical, got 'quick'")):
                done = subprocess.run(
                    [os.path.join(build, "services", binary), "--model",
                     model(), "--numerics", numerics], capture_output=True,
                    text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(words, done.stderr)

    def test_metrics_answer_in_milliseconds_under_load(self):
        with harness.Cluster(model()) as cluster:
            threads = [threading.Thread(target=generate,
                                        args=(cluster.url, 300))
                       for _ in range(16)]
            for thread in threads:
                thread.start()
            seconds = []
            while any(thread.is_alive() for thread in threads):
                for entry in cluster.file["processes"]:
                    begin = time.monotonic()
                    found = api.metrics(entry["metrics_address"])
                    seconds.append(time.monotonic() - begin)
                    self.assertIn("sluice_build_info", found)
            seconds.sort()
            median = seconds[len(seconds) // 2]
            print(f"{len(seconds)} scrapes under load: median "
                  f"{1e3 * median:.1f} ms, slowest {1e3 * seconds[-1]:.1f} ms")
            self.assertLess(median, 0.05)
            found = api.metrics(cluster.url)
            self.assertGreaterEqual(found["vllm:generation_tokens_total"],
                                    16 * 300)
            self.assertGreaterEqual(found["vllm:iteration_tokens_total_sum"],
                                    16 * 300)
            self.assertGreaterEqual(found["vllm:request_params_n_count"], 16)
            for entry in cluster.file["processes"]:
                _, text = api.get("http://" + entry["metrics_address"],
                                  "/metrics")
                metrics_page.check(self, entry["role"], text)


if __name__ == "__main__":
    harness.main()
