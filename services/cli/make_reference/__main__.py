"""`sluice eval make-reference`: an environment with transformers, and in it
answers.py, which writes the reference. Standard library alone."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys

import environment
import prompts
from failure import Failure

ANSWERS = pathlib.Path(__file__).resolve().parent / "answers.py"


def parse(words):
    parser = argparse.ArgumentParser(prog="sluice eval make-reference")
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--out", default=".")
    parser.add_argument("--prompts")
    parser.add_argument("--dtype", default="float32",
                        choices=["float64", "float32", "bfloat16"])
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--venv")
    parser.add_argument("--python")
    return parser.parse_args(words)


def out_path(out, name):
    """OUT, or the file in it that is called after the model."""
    path = pathlib.Path(out)
    if path.is_dir():
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-")
                        else "-" for c in name)
        return path / f"{plain}.reference.json"
    if not path.parent.is_dir():
        raise Failure(f"--out {out}: there is no folder {path.parent}", 2)
    return path


def ended_by(code, out):
    """Failure of a process that a signal ended."""
    name = signal.Signals(-code).name
    why = ""
    if -code == signal.SIGKILL:
        why = (": this machine's memory ran out, if nothing else sent it. "
               "--dtype bfloat16 takes half of float32's, and --prompts takes "
               "shorter ones")
    return Failure(f"the process with transformers was ended by {name}{why}. "
                   f"Finished prompts are kept in {out}.part; the same command "
                   "goes on behind them", 128 - code)


def run(options):
    out = out_path(options.out, options.name)
    prompts.read(options.prompts or prompts.OWN)  # Before the long work.
    if options.python and options.venv:
        raise Failure("--python and --venv are both given: take one", 2)
    python = options.python or environment.python_of(
        options.venv or environment.default_folder())
    command = [python, "-BWignore", str(ANSWERS), "--model", options.model, "--name",
               options.name, "--out", str(out), "--dtype", options.dtype,
               "--max-tokens", str(options.max_tokens), "--top",
               str(options.top)]
    if options.prompts:
        command += ["--prompts", options.prompts]
    # Everything is local: no look at a hub, and no telemetry.
    offline = {name: "1" for name in
               ("HF_HUB_OFFLINE", "TQDM_DISABLE", "TRANSFORMERS_OFFLINE",
                "HF_HUB_DISABLE_TELEMETRY")}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False,
                              env={**os.environ, **offline,
                                   "TOKENIZERS_PARALLELISM": "false"})
    except OSError as error:
        raise Failure(f"--python {python}: {error.strerror}", 2) from error
    if done.returncode < 0:
        raise ended_by(done.returncode, out)
    return done.returncode


def main():
    try:
        return run(parse(sys.argv[1:]))
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
