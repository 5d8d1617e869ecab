"""Rates of a GPU's matrix units, of the parts `peaks` and `pytorch`, and what its
launches cost."""

# Kinds: what an entry of the part `peaks` calls them, and their unit.
KINDS = {"bf16_tflops": ("tflops", "TFLOP/s"), "int8_tops": ("tops", "TOP/s")}
COUNTED = ("two operations for each weight of the layers' matrices and token, of "
           "experts those that a token has; without attention and the head, whose "
           "time counts all the same")


def entries(results):
    """What the part found, one by one."""
    found = results.get("peaks", [])
    return found if isinstance(found, list) else []  # skipped


def matrix_rates(results):
    """By kind the largest rate that was measured, what measured it, and all."""
    found = {}
    for kind, (name, _) in KINDS.items():
        rates = {one["op"]: one[name] for one in entries(results) if name in one}
        if kind in results.get("pytorch", {}):
            rates["PyTorch's products"] = results["pytorch"][kind]
        if rates:
            of = max(rates, key=rates.get)
            found[kind] = {"rate": rates[of], "of": of, "all": rates}
    return found


def print_rates(results):
    """Every rate; the largest ones are those that prompts are held against."""
    for kind, found in matrix_rates(results).items():
        for of, rate in found["all"].items():
            print(f"{kind:24} {rate:10.2f} {KINDS[kind][1]:8} {of}"
                  + (": the measured rate" if of == found["of"] else ""))
    for one in entries(results):
        if "left_out" in one:
            print(f"{one['op']}: {one['left_out']}")
        if "graph_us" not in one:
            continue
        print(f"{one['op']} ({one['blocks']}): {one['eager_us']:.2f} us each, "
              f"{one['graph_us']:.2f} us each of {one['launches']} in a graph")
        for launches, alone in one["lists"].items():
            print(f"  a list of {launches}: {alone['us']:.2f} us, of which "
                  f"{alone['host_us']:.2f} until it is submitted")
