"""The binaries that tests/gpu/run asks: which a part needs, their build, and the
commit that they are of.

usage: binaries.py FOLDER    (writes FOLDER/commit, as the target cuda_tests does)
"""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = "tests/gpu/device_check"
SPEED = "tests/gpu/model_speed"
DEVICES = ("tests/device/device_test",)
TESTS = ("tests/device/cuda/device_cuda_test", "tests/model/model_cuda_test")
SERVICES = ("services/gateway/sluice-gateway", "services/stage/sluice-stage",
            "services/cli/sluice")
EXPERT = "services/expert/sluice-expert"
ALL = (CHECK, SPEED, *DEVICES, *TESTS, *SERVICES, EXPERT)
# Of the parts that ask no model_speed.
NEEDED = {
    **dict.fromkeys(("machine", "bandwidth", "peaks", "check",
                     "check_fast", "check_unconfirmed", "check_wgmma", "time",
                     "time_fast", "sanitizer"),
                    (CHECK,)),
    "devices": DEVICES, "models": TESTS, "models_unconfirmed": TESTS,
    "services": (*SERVICES, EXPERT),
    **dict.fromkeys(("ranks", "two_stages"), SERVICES)}
# In the folder of a build: there from its begin until all is built.
INCOMPLETE = "incomplete"
COMMIT = "commit"  # in that folder, too: what record() writes
END = 20  # seconds that a build which is asked to end may take
BUILD_ID = 3  # type of the note that holds it
CANNOT = 2  # exit code


def needed(part):
    """The binaries that a part runs, as paths in the folder of a build."""
    if part.startswith("pytorch"):
        return ()
    return NEEDED.get(part, (SPEED,))


def lacking(folder, parts):
    """What the parts need and the folder has not, in the order of ALL."""
    wanted = {name for part in parts for name in needed(part)}
    return [name for name in ALL if name in wanted
            and not os.access(folder / name, os.X_OK)]


def commands(folder):
    """What builds all binaries."""
    return [["cmake", "--preset", "cuda", "-B", str(folder),
             "-DSLUICE_UNITY=ON"],
            ["cmake", "--build", str(folder), "--target", "cuda_tests"]]


def find_nvcc():
    """nvcc of $CUDA_HOME, of build/venv-cuda or of the path, as
    kernels/cuda/nvcc.cmake finds it; None without one."""
    wheels = (ROOT / "build/venv-cuda/lib").glob(
        "python3*/site-packages/nvidia/cu13/bin")
    own = os.environ.get("CUDA_HOME")
    folders = [*([os.path.join(own, "bin")] if own else []),
               *map(str, wheels), os.environ.get("PATH", os.defpath)]
    return shutil.which("nvcc", path=os.pathsep.join(folders))


def refused(folder, device):
    """Why nothing can be built in a folder; None if it can."""
    cache = folder / "CMakeCache.txt"
    if device == "cpu":
        return "--device cpu builds nothing"
    if cache.exists():
        if "SLUICE_CUDA:BOOL=ON" not in cache.read_text():
            return "this is a build without SLUICE_CUDA"
    elif any((folder / name).exists() for name in ALL):
        return "this is no folder that cmake builds in"
    if shutil.which("cmake") is None:
        return "there is no cmake here"
    return None


def ensure(folder, parts, device):
    """Builds what the parts need and the folder lacks. Returns 0, or the exit
    code with which there is nothing to run; says why."""
    missing = lacking(folder, parts)
    if not missing and not (folder / INCOMPLETE).exists():
        return 0
    lack = f"{folder} lacks {', '.join(missing)}" if missing else \
        f"{folder}: the build in it has not ended"
    command = " && ".join(map(" ".join, commands(folder)))
    why = refused(folder, device)
    if why is not None:
        print(f"{lack}; {why}. To build, in {ROOT}: {command}",
              file=sys.stderr)
        return CANNOT
    print(f"{lack}; building: {command}", flush=True)
    code = build(folder)
    if code > 128:
        print(f"the build was ended by {signal.Signals(code - 128).name}; what "
              "is compiled is kept: call tests/gpu/run again, or, in "
              f"{ROOT}: {command}", file=sys.stderr)
    elif code:
        print(f"the build failed; in {ROOT}: {command}", file=sys.stderr)
    elif missing := lacking(folder, parts):
        print(f"{folder} lacks {', '.join(missing)} when all is built: a "
              "package may be missing (deploy/local/setup)", file=sys.stderr)
        code = 1
    return code


def build(folder):
    """Builds all binaries, with nvcc of PyPI where there is none. Returns 0, 1,
    or 128 and the number of the signal that ended it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INCOMPLETE).touch()
    (folder / COMMIT).unlink(missing_ok=True)
    before, _ = head()
    todo = commands(folder)
    if find_nvcc() is None:
        venv = ROOT / "build/venv-cuda"
        # One that is half made, or of uv, has no pip.
        todo = [[sys.executable, "-m", "venv", "--clear", str(venv)],
                [str(venv / "bin/pip"), "install", "-q", "-r",
                 str(ROOT / "tests/requirements-cuda.txt")], *todo]
    for command in todo:
        code = run(command)
        if code:
            return code
    record(folder, before)
    return 0


def run(command):
    """Runs a command, to which it passes SIGTERM and SIGINT. Returns what
    build() does."""
    came = []
    before = {number: signal.signal(number, lambda got, _: came.append(got))
              for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        program = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        while program.poll() is None:
            if came:
                end(program, came[0])
            try:
                program.wait(0.2)
            except subprocess.TimeoutExpired:
                pass
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + came[0] if came else int(program.returncode != 0)


def end(program, number):
    """Sends a program and what it started a signal, and SIGKILL if that does
    not end it. Ninja removes what it has half written."""
    for one, seconds in ((number, END), (signal.SIGKILL, None)):
        try:
            os.killpg(program.pid, one)
        except ProcessLookupError:
            return
        try:
            program.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            pass


def head():
    """The commit of the checkout, and which of its files are changed; None
    where there is no git."""
    told = []
    for words in (("rev-parse", "HEAD"),
                  ("status", "--porcelain", "--untracked-files=no")):
        try:
            done = subprocess.run(
                ["git", "-c", f"safe.directory={ROOT}", *words], cwd=ROOT,
                capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return None, []
        told.append(done.stdout.rstrip())
    return told[0], [line[3:] for line in told[1].splitlines()]


def record(folder, before=None):
    """Writes which commit the folder's binaries are of, all built by now, and
    their identities. `before`: the commit when their build began."""
    commit, changed = head()
    if before not in (None, commit):
        changed.append(f"all since {before}, where the build began")
    told = {"commit": commit, "changed": changed,
            "binaries": {name: identity(folder / name) for name in ALL
                         if (folder / name).exists()}}
    begun = folder / (COMMIT + ".part")
    begun.write_text(json.dumps(told, indent=1) + "\n")
    os.replace(begun, folder / COMMIT)
    (folder / INCOMPLETE).unlink(missing_ok=True)


def commit_of(folder, given):
    """The commit of the folder's binaries, and how it is known: `given`, or
    what the folder tells of just these binaries. The commit is None where
    neither is known."""
    path = folder / COMMIT
    try:
        told = json.loads(path.read_text())
        own, changed = told["commit"], told["changed"]
        others = [name for name in ALL if (folder / name).exists()
                  and told["binaries"].get(name) != identity(folder / name)]
    except FileNotFoundError:
        own, why = None, f"there is no {path}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        own, why = None, f"{path}: {type(error).__name__}: {error}"
    else:
        why = f"{path} tells of other binaries: {', '.join(others)}" \
            if others else None if own else "it was built without git"
    if why is not None:
        if given is None:
            return {"commit": None, "commit_from": f"unknown: {why}, and "
                    "--commit is not given"}
        return {"commit": given, "commit_from": f"--commit; {why}"}
    found = {"commit": given or own, "commit_from": str(path),
             "changed": changed}
    if given is not None:
        found["commit_from"] = "--commit" if own.startswith(given) else \
            f"--commit, but {path} tells {own}"
    return found


def identity(path):
    """The linker's build ID, which outlives strip; the SHA-256 without one."""
    data = path.read_bytes()
    return build_id(data) or hashlib.sha256(data).hexdigest()


def build_id(data):
    """The build ID of an ELF file of 64 bits, little-endian; None without."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    begin, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for at in range(begin, begin + size * count, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, at)
        if kind != 4:  # notes
            continue
        stop = offset + length
        while offset + 12 <= stop:
            name, told, what = struct.unpack_from("<III", data, offset)
            told_at = offset + 12 + (name + 3) // 4 * 4
            if what == BUILD_ID and data[offset + 12:offset + 16] == b"GNU\0":
                return data[told_at:told_at + told].hex()
            offset = told_at + (told + 3) // 4 * 4
    return None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    record(pathlib.Path(sys.argv[1]))
