"""The file of a reference: written prompt by prompt beside its place, moved there
when it is whole. Standard library alone."""

import hashlib
import json
import os
import pathlib

from failure import Failure

_PIECE = 1 << 20


class ReferenceFile:
    """OUT.part while it is made: a line with the head, then a line per prompt. A
    run that was cut goes on behind the last whole line, if the head is the same.
    """

    def __init__(self, path, head):
        self._path = pathlib.Path(path)
        self._part = self._path.with_name(self._path.name + ".part")
        self._head = json.dumps(head, sort_keys=True, ensure_ascii=False)
        self.prompts = self._kept()
        self._write("w", [self._head, *map(_line, self.prompts)])

    def _kept(self):
        """Prompts of an earlier run with the same head."""
        try:
            lines = self._part.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            return []
        if lines[0] != self._head:
            return []
        found = []
        for line in lines[1:-1]:  # The last one has no end: it was cut.
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found

    def has(self, name):
        return any(prompt["name"] == name for prompt in self.prompts)

    def add(self, prompt):
        self._write("a", [_line(prompt)])
        self.prompts.append(prompt)

    def _write(self, mode, lines):
        try:
            with open(self._part, mode, encoding="utf-8") as out:
                out.writelines(line + "\n" for line in lines)
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise Failure(f"{self._part}: {error.strerror}") from error

    def finish(self, order, left_out):
        """Moves the file, with its prompts in the order of these names and what
        was left out, to its place."""
        by_name = {prompt["name"]: prompt for prompt in self.prompts}
        lines = ",\n".join(_line(by_name[name]) for name in order
                           if name in by_name)
        head = {**json.loads(self._head), "left_out": left_out}
        text = json.dumps(head, ensure_ascii=False)[:-1]
        whole = self._path.with_name(self._path.name + ".new")
        try:
            with open(whole, "w", encoding="utf-8") as out:
                out.write(f'{text}, "prompts": [\n{lines}\n]}}\n')
                out.flush()
                os.fsync(out.fileno())
            os.replace(whole, self._path)
            self._part.unlink()
        except OSError as error:
            raise Failure(f"{self._path}: {error.strerror}") from error


def _line(prompt):
    return json.dumps(prompt, ensure_ascii=False, separators=(",", ":"))


def model_files(model):
    """The files of a model that its answers depend on, by name."""
    model = pathlib.Path(model)
    if model.is_file():
        return {model.name: model}
    kinds = (".json", ".safetensors", ".model", ".tiktoken", ".jinja", ".txt")
    return {path.name: path for path in sorted(model.iterdir())
            if path.name.endswith(kinds) and path.is_file()}


def digest(model, progress=lambda name: None):
    """{"sha256": of the lines of sha256sum, "files": {name: SHA-256}}"""
    sums = {}
    for name, path in model_files(model).items():
        progress(name)
        sha = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(_PIECE):
                sha.update(piece)
        sums[name] = sha.hexdigest()
    lines = "".join(f"{value}  {name}\n" for name, value in sums.items())
    return {"sha256": hashlib.sha256(lines.encode()).hexdigest(),
            "files": sums}


def text_digest(value):
    """SHA-256 of a value's JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def count_parameters(folder):
    """Values of a folder's safetensors, by their headers; None where a type packs
    several into one, or there are none."""
    count = 0
    for path in model_files(folder).values():
        if path.suffix != ".safetensors":
            continue
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > 1 << 28:
                return None
            try:
                header = json.loads(file.read(size))
            except ValueError:
                return None
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            if tensor["dtype"] not in ("F64", "F32", "F16", "BF16"):
                return None
            values = 1
            for extent in tensor["shape"]:
                values *= extent
            count += values
    return count or None


def available_memory(meminfo="/proc/meminfo"):
    """Bytes that this machine can give, swap included; None if it is unknown."""
    found = {}
    try:
        with open(meminfo, encoding="ascii") as file:
            for line in file:
                name, value = line.split(":")
                found[name] = int(value.split()[0]) * 1024
        return found["MemAvailable"] + found.get("SwapFree", 0)
    except (OSError, ValueError, KeyError, IndexError):
        return None


def check_memory(parameters, value_bytes, dtype, available):
    """Failure if the weights alone take more than there is."""
    if parameters is None or available is None:
        return
    needed = parameters * value_bytes
    if needed <= available:
        return
    smaller = {"float64": "--dtype float32 takes half, bfloat16 a quarter",
               "float32": "--dtype bfloat16 takes half",
               "bfloat16": "a machine with more memory can make it"}[dtype]
    raise Failure(
        f"the model's weights take {needed / 1e9:.1f} GB in {dtype} "
        f"({parameters / 1e9:.2f} billion values), and {available / 1e9:.1f} GB "
        f"of memory are free: {smaller}")
