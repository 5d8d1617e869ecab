"""deploy/local/cluster with processes of fake_process.py: COMMAND OPTION...

A file absent-ROLE in the run folder: that one's program does not exist. A file
hold-layout: planning waits, and tells so by the file planning.
"""

import os
import pathlib
import runpy
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "deploy/local/cluster"
sys.path.insert(0, str(PACKAGE))

import layout  # noqa: E402
import ports  # noqa: E402
import process  # noqa: E402


def make_processes(options, model, default_port):
    run_dir = pathlib.Path(options.run_dir)
    chosen = ports.choose(2)
    (run_dir / "planning").touch()
    while (run_dir / "hold-layout").exists():
        time.sleep(0.01)

    def make(role, port):
        absent = (run_dir / f"absent-{role}").exists()
        return process.Process(
            role=role, index=0,
            argv=["/no/such/program" if absent else sys.executable, "-B",
                  str(HERE / "fake_process.py"), role, str(run_dir),
                  str(port)],
            environment=dict(os.environ), addresses=[f"127.0.0.1:{port}"],
            metrics_address=f"127.0.0.1:{port}",
            log=str(run_dir / f"{role}.log"))
    return [make("stage", chosen[0]), make("gateway", chosen[1])]


layout.make_processes = make_processes
runpy.run_path(str(PACKAGE / "__main__.py"), run_name="__main__")
