"""What processes compute on: names of devices, and which go together."""

import argparse
import re

GPU = r"(\d{1,4}|(GPU|MIG)-[0-9A-Fa-fGPU/-]+)"


def names(text):
    """auto, or a device for each process: cuda:0,1,cuda:2,3 are two.
    ArgumentTypeError for anything else."""
    if text == "auto":
        return [text]
    found = re.split(r",(?=cpu|cuda)", text)
    for one in found:
        if not re.fullmatch(rf"cpu|cuda(:{GPU}(,{GPU})*)?", one):
            raise argparse.ArgumentTypeError(
                "must be auto, or cpu or cuda:G[,G...] for all stages or for "
                f"each, with numbers or ids of GPUs, got '{one}'")
    return found


def single_names(text):
    """The same for processes of one GPU each."""
    found = names(text)
    for one in found:
        if len(gpus_of(one)) > 1:
            raise argparse.ArgumentTypeError(
                f"a host of experts computes on one GPU, got '{one}'")
    return found


def gpus_of(device):
    """The GPUs that a device's name has."""
    if not device.startswith("cuda"):
        return []
    return device.partition(":")[2].split(",") if ":" in device else ["0"]


def kinds(devices):
    return {name.split(":")[0] for name in devices}


def shared_gpu(stages, experts=()):
    """A GPU of one machine that several stages name, or a stage and a host of
    experts; None if there is none."""
    seen = set()
    for gpu in (gpu for device in stages for gpu in gpus_of(device)):
        if gpu in seen:
            return gpu
        seen.add(gpu)
    hosted = {gpu for device in experts for gpu in gpus_of(device)}
    return next(iter(sorted(seen & hosted)), None)


def problem(named, machines, options):
    """What is wrong with the devices of a cluster's processes, in the words of
    up's options; None if nothing is. `named` is where they are given,
    `machines` a pair per machine: its stages' devices, its hosts of experts'.
    Without a name a process computes on the CPU."""
    every = [device for pair in machines for of in pair for device in of]
    found = kinds(every)
    if len(found) > 1 and options.numerics != "canonical":
        return (f"{named} has CPUs and GPUs, or leaves that open: their "
                "numerics are the same with --numerics canonical alone")
    if options.numerics == "fast" and found not in ({"cuda"}, {"auto"}):
        return ("--numerics fast is for GPUs: a CPU has canonical ones alone; "
                f"name GPUs with {named}")
    if options.activations == "f32" and (
            options.numerics == "fast"
            or found & {"cuda"} and options.numerics != "canonical"):
        return ("--activations f32 excludes --numerics fast, which is the "
                "default on GPUs: matrix units compute in BF16; "
                "--numerics canonical takes it")
    if "auto" in found and options.layers:
        return ("--device auto is for stages whose layers are split by bytes; "
                "with --layers name each stage's device")
    for stages, experts in machines:
        gpu = shared_gpu(stages, experts)
        if gpu is not None and not options.kv_blocks:
            return (f"{named} has several stages on GPU {gpu}"
                    if shared_gpu(stages) is not None else
                    f"{named} has a stage and a host of experts on GPU {gpu}"
                    ) + (": each would take all its memory for keys and "
                         "values; --kv-blocks says how many each has")
    return None
