"""What `sluice plan --write slurm` writes, submitted as it is written to a real
slurmctld with three slurmd, and what sluice.sbatch does with it: nodes of several
stages, hosts of experts, models of a hub, GPUs that nobody has."""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import urllib.request

import slurm_jobs_test as jobs
harness = jobs.harness

sys.path[:0] = [str(harness.ROOT / "tests/testing"),
                str(harness.ROOT / "tests/tools/hub")]
import fake_hub  # noqa: E402
import planned  # noqa: E402
from planned import machine  # noqa: E402

NAME = "sluice-tests/demo"
BODY = {**jobs.BODY, "max_tokens": 24}


class SlurmPlansTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        jobs.SlurmTest.setUpClass.__func__(cls)
        (cls.slurm.folder / "deploy").symlink_to(harness.ROOT / "deploy")
        (cls.bin / "sluice-expert").symlink_to(
            pathlib.Path(os.environ["SLUICE_BUILD_DIR"]).absolute()
            / "services/expert/sluice-expert")
        with harness.Cluster(jobs.MODEL, "--stages", "1") as cluster:
            cls.want = cls.ask(cluster.url, "none")

    @staticmethod
    def ask(url, key):
        status, _, raw = jobs.api.request(
            url, "POST", "/v1/completions", BODY,
            {"Authorization": f"Bearer {key}"})
        if status != 200:
            raise AssertionError(raw)
        return json.loads(raw)["choices"][0]["token_ids"]

    def submit(self, text, *words, **environment):
        """The id of the job that the written script submits."""
        port, = jobs.ports.choose(1)
        self.url = f"http://127.0.0.1:{port}"
        script = self.slurm.folder / "plan.sh"
        script.write_text(text.rstrip("\n") + f" --port {port} --local "
                          f"{self.slurm.folder} {' '.join(words)}\n")
        done = subprocess.run(
            ["sh", "-e", script], cwd=self.slurm.folder, capture_output=True,
            text=True, timeout=120, check=False,
            env={**self.slurm.environment, "SLUICE_BIN": str(self.bin),
                 "SBATCH_TIMELIMIT": "10", **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        job = re.search(r"Submitted batch job (\d+)", done.stdout)[1]
        self.addCleanup(self.slurm.run, "scancel", job)
        return job

    def log(self, job):
        path = self.slurm.folder / f"sluice-{job}.log"
        return path.read_text() if path.exists() else ""

    def wait_ready(self, job):
        """The job's folder and key once it is ready."""
        folder = self.slurm.folder / f"sluice-{job}"
        try:
            harness.wait_for(lambda: "sluice: ready" in self.log(job), 90,
                             "ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log(job)}" + "".join(
                path.read_text()[-1500:] for path in folder.glob("*.log"))
            ) from None
        return folder, (folder / "api-keys").read_text().strip().split(":")[1]

    def end(self, job):
        self.slurm.run("scancel", "--signal=TERM", "--batch", job)
        harness.wait_for(lambda: self.slurm.state(job) == "COMPLETED", 60,
                         "the job has ended")

    def test_nodes_of_two_stages_and_prometheus_finds_them(self):
        text = planned.write("slurm", machine("a") + machine("b"), options=(
            *planned.SMALL, "--stages", "4"))
        self.assertIn("sbatch -N 2 ", text)
        memory = int(re.search(r"--mem=(\d+)M", text)[1])
        self.assertLessEqual(memory, jobs.MEMORY)
        targets = self.slurm.folder / "targets"
        targets.mkdir()
        job = self.submit(text, "--targets", str(targets))
        folder, key = self.wait_ready(job)
        self.assertEqual(self.ask(self.url, key), self.want)
        self.assertEqual(len(list(folder.glob("stage-*.log"))), 4)
        found = json.loads((targets / f"sluice-{job}.json").read_text())
        self.assertEqual([(one["labels"]["role"], one["labels"]["index"])
                          for one in found],
                         [("stage", str(i)) for i in range(4)]
                         + [("gateway", "0")])
        for one in found:
            with urllib.request.urlopen(
                    f"http://{one['targets'][0]}/metrics", timeout=10) as page:
                self.assertIn(b"sluice_", page.read())
        self.end(job)
        self.assertEqual(list(targets.iterdir()), [])

    def test_unequal_nodes_and_a_host_of_experts(self):
        """Named nodes, in an order that is not Slurm's own."""
        text = planned.write(
            "slurm", machine("n2") + machine("n0", "1G")
            + machine("n1", role="experts"))
        self.assertIn("--node-order n2,n0,n1", text)
        job = self.submit(text)
        folder, key = self.wait_ready(job)
        self.assertEqual(self.ask(self.url, key), self.want)
        self.assertTrue((folder / "expert-0.log").exists())
        steps = self.slurm.run("squeue", "-s", "-h", "-j", job, "-o", "%j %N")
        self.assertLessEqual({"sluice-stage-0 n2", "sluice-stage-1 n0",
                              "sluice-expert-0 n1"}, set(steps.splitlines()))
        self.end(job)

    def start_hub(self):
        hub = fake_hub.FakeHub()
        self.addCleanup(hub.close)
        hub.repositories[NAME] = fake_hub.Repository(
            {path.name: path.read_bytes() for path in planned.DEMO.iterdir()},
            lfs=["model.safetensors"])
        return {"HF_ENDPOINT": hub.url,
                "HF_HOME": str(self.slurm.folder / "hf")}

    def test_a_hubs_model_is_fetched_before_it_is_submitted(self):
        text = planned.write("slurm", machine("a"), options=(
            *planned.SMALL, "--source", NAME))
        job = self.submit(text, **self.start_hub())
        _, key = self.wait_ready(job)
        self.assertEqual(self.ask(self.url, key), self.want)
        self.end(job)

    def test_a_hubs_model_is_fetched_by_the_job(self):
        text = (f"sbatch -N 1 deploy/slurm/sluice.sbatch --model {NAME} "
                "--stage-options '--kv-blocks 64'")
        job = self.submit(text, **self.start_hub())
        _, key = self.wait_ready(job)
        self.assertEqual(self.ask(self.url, key), self.want)
        self.end(job)

    def expect_failure(self, job, *said):
        harness.wait_for(lambda: self.slurm.state(job) == "FAILED", 30,
                         f"the job has failed: {self.log(job)}")
        for words in said:
            self.assertIn(words, self.log(job))
        self.assertNotIn("it is started again", self.log(job))

    def test_a_hub_that_nobody_reaches_ends_the_job(self):
        job = self.submit(
            f"sbatch -N 1 deploy/slurm/sluice.sbatch --model {NAME}",
            HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_OFFLINE="1",
            HF_HOME=str(self.slurm.folder / "empty"))
        self.expect_failure(job, "on a node that reaches the hub, sluice pull")

    def test_gpus_that_are_not_there_end_the_job_at_once(self):
        job = self.submit(
            "sbatch -N 2 deploy/slurm/sluice.sbatch --model "
            f"{jobs.MODEL} --gpus-per-stage 2")
        self.expect_failure(job, "a stage cannot be started on n0 n1 with 2 GPUs",
                            "gres")

    def test_what_does_not_fit_the_nodes_is_told_without_slurm(self):
        placement = self.slurm.folder / "none.json"
        placement.write_text("{}")
        for words, told in (
                (("--layers", "0-1,2-4,5-5"), "--layers has 3 ranges, the nodes "
                 "have 2 stages"),
                (("--layers", "0-1;2"), "--layers must be first-last of every"),
                (("--stages-per-node", "1,2,3"), "3 numbers for 2 nodes"),
                (("--placement", "/nowhere"), "/nowhere: no such file"),
                (("--placement", placement), "no address expert-0:PORT"),
                (("--base-port", "65533"), "leaves no ports for 2 processes")):
            done = subprocess.run(
                [jobs.SCRIPT, "--check", "--model", "/m", "--nodes", "2", *words],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(told, done.stderr)


if __name__ == "__main__":
    harness.main()
