"""deploy/slurm on a real slurmctld with three slurmd of this machine: an answer,
a killed stage, the signal of the time limit in the middle of a stream, a job
that is queued again, and no process left. The long mode waits for the limit."""

import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2] / "integration"))
sys.path.append(str(HERE.parents[3] / "deploy" / "local" / "cluster"))
import api  # noqa: E402
import harness  # noqa: E402
import ports  # noqa: E402

SCRIPT = harness.ROOT / "deploy/slurm/sluice.sbatch"
MODEL = harness.ROOT / "deploy/demo_model/weights"
NODES = 3
MEMORY = 1950  # MiB of a node, as one of 2 GiB tells it
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol",
         "squeue", "openssl")
BODY = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0.8,
        "seed": 3, "ignore_eos": True, "return_token_ids": True}
CONF = """
ClusterName=sluice-test
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={controller}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=20
MinJobAge=300
ReturnToService=2
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A controller and NODES daemons of one machine, with a munge of their
    own."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.chmod(0o755)
        for name in ("state", *(f"spool-n{i}" for i in range(NODES))):
            (self.folder / name).mkdir()
        (self.folder / "plugstack.conf").write_text("")
        controller, *daemons = ports.choose(1 + NODES)
        nodes = "\n".join(
            f"NodeName=n{i} NodeHostname=localhost NodeAddr=127.0.0.1 "
            f"Port={port} CPUs=4 RealMemory={MEMORY} State=UNKNOWN"
            for i, port in enumerate(daemons))
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(CONF.format(folder=folder, nodes=nodes,
                                         controller=controller))
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.children = []
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.start("munged", "--foreground", "--force", "--syslog",
                   f"--key-file={key}", f"--socket={folder}/munge.socket",
                   f"--pid-file={folder}/munged.pid",
                   f"--seed-file={folder}/munged.seed")
        harness.wait_for((self.folder / "munge.socket").exists, 20, "munged")
        self.start("slurmctld", "-D")
        for i in range(NODES):
            self.start("slurmd", "-D", "-N", f"n{i}")
        harness.wait_for(lambda: self.run("sinfo", "-h", "-o", "%T %D") ==
                         f"idle {NODES}\n", 60, "the nodes are idle")

    def start(self, *command):
        log = open(self.folder / f"{command[0]}-{len(self.children)}.log", "w")
        with log:
            self.children.append(subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log))

    def run(self, *command):
        done = subprocess.run([str(word) for word in command],
                              env=self.environment, capture_output=True,
                              text=True, timeout=60, cwd=self.folder,
                              check=False)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def state(self, job):
        return re.search(r"JobState=(\S+)", self.run(
            "scontrol", "show", "job", job))[1]

    def logs(self):
        return "".join(f"\n--- {path.name}\n" + path.read_text()[-1500:]
                       for path in self.folder.glob("*.log"))

    def close(self):
        for child in reversed(self.children):
            child.terminate()
        for child in reversed(self.children):
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


class CommandsTest(unittest.TestCase):
    """--check, which needs no Slurm."""

    def stages(self, *words, folder=None, **environment):
        done = subprocess.run(
            [SCRIPT, "--check", "--model", "/m", *words], capture_output=True,
            text=True, check=True, cwd=folder,
            env={"PATH": os.environ["PATH"], "SLUICE_RUN": "run",
                 **environment})
        return [line for line in done.stdout.splitlines()
                if "sluice-stage" in line]

    def test_each_stage_names_gpus_of_its_own_on_its_node(self):
        stages = self.stages("--nodes", "2", "--stages-per-node", "2",
                             "--gpus-per-stage", "2")
        self.assertEqual(
            [re.search(r"--device (\S+)", line)[1].replace("\\", "")
             for line in stages],
            ["cuda:0,1", "cuda:2,3"] * 2)
        one = self.stages("--nodes", "1", "--gpus-per-stage", "1",
                          SLUICE_IMAGE="/i.sif")
        self.assertIn("--device cuda:0", one[0])
        self.assertIn("apptainer exec --nv --bind", one[0])

    def test_options_are_words_and_no_patterns(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a.log").touch()
            stages = self.stages("--nodes", "1", "--stage-options", "--isa *",
                                 folder=folder)
        self.assertIn(r"--isa \*", stages[0])

    def test_without_gpus_nothing_is_said_of_devices(self):
        for line in self.stages("--nodes", "2", SLUICE_IMAGE="/i.sif"):
            self.assertNotIn("--device", line)
            self.assertNotIn("--nv", line)

    def test_a_number_of_gpus_that_is_none_is_refused(self):
        done = subprocess.run(
            [SCRIPT, "--model", MODEL, "--gpus-per-stage", "all"],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--gpus-per-stage must be between 0 and 99, got all",
                      done.stderr)


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = [tool for tool in TOOLS if not shutil.which(tool)]
        if missing:
            raise unittest.SkipTest(f"needs {', '.join(missing)} (Debian's "
                                    "slurmctld, slurmd, slurm-client, munge)")
        if os.getuid() != 0:
            raise unittest.SkipTest("needs root: slurmd starts processes of "
                                    "users")
        folder = tempfile.TemporaryDirectory(prefix="sluice-slurm-")
        cls.addClassCleanup(folder.cleanup)
        cls.bin = pathlib.Path(folder.name) / "bin"
        cls.bin.mkdir()
        build = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "services"
        for name in ("gateway", "stage"):
            (cls.bin / f"sluice-{name}").symlink_to(
                build / name / f"sluice-{name}")
        (cls.bin / "sluice").symlink_to(build / "cli/sluice")
        cls.slurm = Slurm(folder.name)
        cls.addClassCleanup(cls.slurm.close)

    def submit(self, *options, words=(), stage_options="", where=None):
        """A job that is ready: (id, its gateway's URL, its folder, key).
        `where`: variables of its environment that say where the programs
        are."""
        port, = ports.choose(1)
        out = self.slurm.run(
            "sbatch", "--parsable", "-N", NODES, "--export",
            f"ALL,{where or f'SLUICE_BIN={self.bin}'}", *options, SCRIPT, "--model", MODEL,
            "--port", port, "--stage-options",
            f"--packed off {stage_options}", *words)
        job = out.strip()
        log = self.slurm.folder / f"sluice-{job}.log"
        self.addCleanup(self.slurm.run, "scancel", job)
        try:
            harness.wait_for(lambda: log.exists() and
                             "sluice: ready" in log.read_text(), 60, "ready")
        except AssertionError as error:
            folder = self.slurm.folder / f"sluice-{job}"
            raise AssertionError(f"{error}\n{self.slurm.logs()}" + "".join(
                path.read_text()[-1500:] for path in folder.glob("*.log"))
            ) from None
        folder = self.slurm.folder / f"sluice-{job}"
        key = (folder / "api-keys").read_text().strip().split(":")[1]
        return job, f"http://127.0.0.1:{port}", folder, key

    def ask(self, url, key):
        status, _, raw = api.request(url, "POST", "/v1/completions", BODY,
                                     {"Authorization": f"Bearer {key}"})
        self.assertEqual(status, 200, raw)
        return json.loads(raw)["choices"][0]["token_ids"]

    def left(self):
        """Command lines of the job's programs that still run."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode()
            except (OSError, UnicodeDecodeError):
                continue
            if line.startswith(str(self.bin)):
                found.append(line)
        return found

    def expect_nothing_left(self):
        harness.wait_for(lambda: not self.left(), 30, "no process is left")

    def test_three_nodes_answer_a_stage_is_killed_and_nothing_is_left(self):
        with harness.Cluster(MODEL) as cluster:
            want = self.ask(cluster.url, "none")
        job, url, folder, key = self.submit("-t", "10")
        self.assertEqual((folder / "api-keys").stat().st_mode & 0o777, 0o600)
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        self.assertEqual(api.request(url, "POST", "/v1/completions", BODY)[0],
                         401)
        self.assertEqual(self.ask(url, key), want)
        found = subprocess.run(
            ["pgrep", "-f", f"^{self.bin}/sluice-stage .*--stage-index 1 "],
            capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(found[0]), signal.SIGKILL)
        self.assertEqual(self.ask(url, key), want)
        self.slurm.run("scancel", "--signal=TERM", "--batch", job)
        harness.wait_for(lambda: self.slurm.state(job) == "COMPLETED", 60,
                         "the job has ended")
        self.expect_nothing_left()

    def test_an_image_has_the_programs(self):
        """A folder stands for the image, and a script for Apptainer, which
        runs what `exec` names and sees that folders are bound."""
        tools = self.slurm.folder / "tools"
        tools.mkdir()
        image = self.slurm.folder / "image"
        (image / "bin").mkdir(parents=True)
        for path in self.bin.iterdir():
            (image / "bin" / path.name).symlink_to(path.resolve())
        apptainer = tools / "apptainer"
        apptainer.write_text(
            '#!/bin/bash\n[[ $1 == exec && $2 == --bind ]] || exit 3\n'
            'IFS=, read -ra bound <<<"$3"\n'
            'for path in "${bound[@]}"; do [[ -d $path ]] || exit 4; done\n'
            'echo "$3" >>"$4/bound"\n'
            'PATH=$4/bin:$PATH && shift 4 && exec "$@"\n')
        apptainer.chmod(0o755)
        job, url, folder, key = self.submit(
            "-t", "10", where=f"SLUICE_IMAGE={image},PATH={tools}:"
            f"{os.environ['PATH']}")
        self.assertEqual(len(self.ask(url, key)), BODY["max_tokens"])
        bound = set((image / "bound").read_text().split("\n")[0].split(","))
        self.assertLessEqual({str(folder), str(MODEL.parent)}, bound)
        self.slurm.run("scancel", "--signal=TERM", "--batch", job)
        harness.wait_for(lambda: self.slurm.state(job) == "COMPLETED", 60,
                         "the job has ended")

    @unittest.skipUnless(harness.LONG, "over a minute: SLUICE_LONG")
    def test_a_stage_that_cannot_start_ends_the_job(self):
        with self.assertRaises(AssertionError) as caught:
            self.submit("-t", "10", stage_options="--no-such-option 1")
        job = re.search(r"sluice-(\d+)\.log", str(caught.exception))[1]
        harness.wait_for(lambda: self.slurm.state(job) == "FAILED", 60,
                         "the job has failed")
        log = (self.slurm.folder / f"sluice-{job}.log").read_text()
        self.assertIn("cannot stay; its log ends with:", log)
        self.assertIn("no-such-option", log)
        self.expect_nothing_left()

    def stream(self, url, key):
        """How a stream ended: "whole", a status, or "no server"."""
        try:
            status, _, raw = api.request(
                url, "POST", "/v1/completions",
                {**BODY, "max_tokens": 300, "stream": True},
                {"Authorization": f"Bearer {key}"})
        except OSError:
            return "no server"
        if status != 200:
            return status
        return "whole" if raw.endswith(b"data: [DONE]\n\n") else raw[-200:]

    def test_told_of_the_limit_a_stream_ends_and_the_job_is_queued_again(self):
        job, url, folder, key = self.submit(
            "-N", "2", "-t", "10",
            words=("--requeue-at-limit", "--stages-per-node", "2"),
            stage_options="--debug-step-delay-ms 5")
        self.assertEqual(len(list(folder.glob("stage-*.log"))), 4)
        log = self.slurm.folder / f"sluice-{job}.log"
        wanted = urllib.request.Request(
            url + "/v1/completions",
            json.dumps({**BODY, "max_tokens": 300, "stream": True}).encode(),
            {"Authorization": f"Bearer {key}",
             "Content-Type": "application/json"})
        with urllib.request.urlopen(wanted, timeout=120) as stream:
            first = stream.readline()
            self.slurm.run("scancel", "--signal=USR1", "--batch", job)
            harness.wait_for(lambda: "the time limit is near" in
                             log.read_text(), 30, "the signal is seen")
            self.assertNotIn("the gateway ended", log.read_text())
            rest = stream.read()
        self.assertTrue(first.startswith(b"data: {"), first)
        self.assertTrue(rest.endswith(b"data: [DONE]\n\n"), rest[-200:])
        harness.wait_for(lambda: "Restarts=1" in self.slurm.run(
            "scontrol", "show", "job", job), 60, "the job is queued again")
        self.expect_nothing_left()
        self.assertIn("the gateway ended with 0", log.read_text())
        self.assertIn(key, (folder / "api-keys").read_text())

    @unittest.skipUnless(harness.LONG, "two minutes: SLUICE_LONG")
    def test_at_the_time_limit_a_stream_comes_to_its_end(self):
        # Slurm sends the signal up to a minute before its time.
        job, url, folder, key = self.submit("-t", "2", "--signal=B:USR1@40")
        ends = []
        while not ends or ends[-1] == "whole":
            ends.append(self.stream(url, key))
        self.assertIn(ends[-1], (503, "no server"))
        self.assertGreater(len(ends), 2)
        harness.wait_for(lambda: self.slurm.state(job) == "COMPLETED", 60,
                         "the job has ended")
        log = self.slurm.folder / f"sluice-{job}.log"
        self.assertIn("the time limit is near", log.read_text())
        self.assertIn("the gateway ended with 0", log.read_text())
        self.expect_nothing_left()

    def test_the_example_of_four_nodes_is_what_would_be_started(self):
        want = (SCRIPT.parent / "llama-3.3-70b.txt").read_text()
        user = pwd.getpwuid(os.getuid()).pw_name
        want = want.replace("/sluice-me ", f"/sluice-{user} ")
        command = re.match(r"\$ (.*)\n", want)[1].split()
        self.assertEqual(command[0], "sluice.sbatch")
        done = subprocess.run(
            [SCRIPT, *command[1:]], capture_output=True, text=True, check=True,
            env={"PATH": os.environ["PATH"], "SLUICE_BIN": "/opt/sluice/bin", "SLUICE_RUN": "run"})
        self.assertEqual(done.stdout, want.split("\n", 1)[1])

    def test_what_cannot_be_started_is_told_without_slurm(self):
        for words, told in (
                ((), "--model is missing"),
                (("--model", "/nowhere"), "--model /nowhere: no such file"),
                (("--model", MODEL, "--port", "70000"),
                 "--port must be between 1 and 65535, got 70000"),
                (("--model", MODEL, "--check", "--nodes", "0"),
                 "--check needs --nodes N"),
                (("--model", MODEL, "--stages-per-node", "0"),
                 "--stages-per-node must be between 1 and 99, got 0"),
                (("--model", MODEL, "--more"), "--more is no option")):
            done = subprocess.run(
                [SCRIPT, *words], capture_output=True, text=True, check=False,
                env={**os.environ, "SLUICE_BIN": str(self.bin)})
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(told, done.stderr)


if __name__ == "__main__":
    harness.main()
