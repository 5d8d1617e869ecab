#!/usr/bin/env python3
"""PyTorch's best loop over a model's shapes, to compare with: random weights, no
network, no other package.

Keys and values lie in a static cache, a compiled step makes the next token on the
GPU, and the whole step is one CUDA graph, which is replayed: nothing of Python is
left in it. The replays are timed one by one and all together, waited for once, and
the faster counts. Two ways to compile are tried, each layer by itself and the whole step
at once, and the faster one counts; with --dtype fp8 the two ways are
torch._scaled_mm of activations in FP8, and FP8 weights that are widened where they
are read.

Without --model: the rates of large products, and of a row's. Prints JSON lines.
Exit code 77, and a line that says why, where there is no PyTorch or no CUDA.
"""
import argparse
import json
import statistics
import sys
import time

SKIPPED = 77
ROPE_THETA = 500000.0
EPS = 1e-5
FP8_MOST = 448.0
WARM = 3
PREFILLS = 5
# layers, hidden, heads, kv heads, head_dim, intermediate, vocabulary, tied head
SHAPES = {
    "tiny": (2, 64, 4, 2, 16, 128, 256, False),
    "llama1b": (16, 2048, 32, 8, 64, 8192, 128256, True),
    "llama8b": (32, 4096, 32, 8, 128, 14336, 128256, False),
}


def skip(why):
    print(f"skipped: {why}", file=sys.stderr)
    sys.exit(SKIPPED)


try:
    import torch
    from torch.nn import functional
except ImportError:
    skip("PyTorch is not installed")


class Fp8:
    """A matrix of FP8 with a scale per row, and how it is multiplied."""

    def __init__(self, weight, scaled):
        self.scale = (weight.abs().amax(1) / FP8_MOST).float().clamp(min=1e-12)
        self.codes = (weight / self.scale[:, None]).to(torch.float8_e4m3fn)
        self.scaled = scaled


def linear(x, weight):
    """x [.., K] times a matrix [N, K], BF16 or a tuple of Fp8's parts."""
    if not isinstance(weight, tuple):
        return functional.linear(x, weight)
    codes, scale, scaled = weight
    if not scaled:
        return functional.linear(x, codes.to(x.dtype)) * scale.to(x.dtype)
    rows = x.reshape(-1, x.shape[-1])
    of_row = rows.abs().amax(1, keepdim=True).float().clamp(
        min=1e-6) / FP8_MOST
    product = torch._scaled_mm(  # pylint: disable=protected-access
        (rows / of_row).to(torch.float8_e4m3fn), codes.t(), scale_a=of_row,
        scale_b=scale[None, :], out_dtype=x.dtype)
    return product.reshape(*x.shape[:-1], -1)


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
            ).to(x.dtype) * weight


def rotate(x, cos, sin):
    """RoPE of [B, T, N, D] by tables [T, D / 2]."""
    low, high = x.float().chunk(2, -1)
    cos, sin = cos[None, :, None], sin[None, :, None]
    return torch.cat((low * cos - high * sin, high * cos + low * sin),
                     -1).to(x.dtype)


def attention(q, keys, values, mask):
    """q [B, T, N, D]; a step's one token per sequence reads the whole cache
    behind a mask, its heads of one kv head as rows; a prompt reads itself."""
    batch, tokens, heads, dim = q.shape
    kv_heads = keys.shape[1]
    if mask is not None:
        rows = q.view(batch, kv_heads, heads // kv_heads, dim)
        out = functional.scaled_dot_product_attention(
            rows, keys, values, attn_mask=mask)
        return out.reshape(batch, 1, heads * dim)
    group = heads // kv_heads
    out = functional.scaled_dot_product_attention(
        q.transpose(1, 2), keys.repeat_interleave(group, 1),
        values.repeat_interleave(group, 1), is_causal=True)
    return out.transpose(1, 2).reshape(batch, tokens, heads * dim)


def layer(x, weights, cache, cos, sin, positions, mask, heads, kv_heads):
    norm1, qkv, out, norm2, gate_up, down = weights
    keys, values = cache
    batch, tokens, _ = x.shape
    dim = keys.shape[-1]
    mixed = linear(rms_norm(x, norm1), qkv).view(
        batch, tokens, heads + 2 * kv_heads, dim)
    q, k, v = mixed.split((heads, kv_heads, kv_heads), 2)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    keys.index_copy_(2, positions, k)
    values.index_copy_(2, positions, v)
    read = (keys, values) if mask is not None else (k, v)
    x = x + linear(attention(q, *read, mask), out)
    gate, up = linear(rms_norm(x, norm2), gate_up).chunk(2, -1)
    return x + linear(functional.silu(gate) * up, down)


def logits(x, norm, head):
    """Of the last token of each sequence."""
    return functional.linear(rms_norm(x[:, -1:], norm), head)


class Model:
    """Weights, and the two programs that are measured."""

    def __init__(self, shape, device, scaled):
        (self.layers, self.hidden, self.heads, self.kv_heads, self.dim,
         inner, vocab, tied) = shape
        self.device = device
        q, kv = self.heads * self.dim, self.kv_heads * self.dim

        def matrix(rows, cols, quantised=True):
            made = torch.randn(rows, cols, device=device,
                               dtype=torch.bfloat16) * cols ** -0.5
            if scaled is None or not quantised:
                return made
            fp8 = Fp8(made, scaled)
            return (fp8.codes, fp8.scale, fp8.scaled)

        def norm():
            return torch.ones(self.hidden, device=device,
                              dtype=torch.bfloat16)

        self.embedding = matrix(vocab, self.hidden, False)
        self.head = self.embedding if tied else matrix(vocab, self.hidden,
                                                       False)
        self.norm = norm()
        self.weights = [
            (norm(), matrix(q + 2 * kv, self.hidden), matrix(self.hidden, q),
             norm(), matrix(2 * inner, self.hidden),
             matrix(self.hidden, inner)) for _ in range(self.layers)]

    def tables(self, length):
        steps = torch.arange(0, self.dim, 2, device=self.device).double()
        angles = (torch.arange(length, device=self.device).double()[:, None]
                  * ROPE_THETA ** (-steps / self.dim)[None])
        return angles.cos().float(), angles.sin().float()

    def caches(self, batch, length):
        return [tuple(torch.zeros(batch, self.kv_heads, length, self.dim,
                                  device=self.device, dtype=torch.bfloat16)
                      for _ in range(2)) for _ in range(self.layers)]

    def forward(self, tokens, positions, state, mask, one_layer, one_head):
        caches, cos, sin = state
        x = functional.embedding(tokens, self.embedding)
        cos, sin = cos[positions], sin[positions]
        for weights, cache in zip(self.weights, caches):
            x = one_layer(x, weights, cache, cos, sin, positions, mask,
                          self.heads, self.kv_heads)
        return one_head(x, self.norm, self.head)


def synchronise(device):
    if device == "cuda":
        torch.cuda.synchronize()


def captured(step, device):
    """A function that does the step again: a replay of its CUDA graph."""
    if device != "cuda":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def compiled(function, options):
    if options.eager:
        return function
    return torch.compile(function, dynamic=False)


def rates(seconds, tokens):
    return {"tok_per_s": tokens * len(seconds) / sum(seconds),
            "best_tok_per_s": tokens / min(seconds),
            "ms_p50": statistics.median(seconds) * 1e3}


def timed(replay, rewind, streams, device, steps):
    """The rates of so many replays: with a wait for each, or with one behind all,
    whichever is faster."""
    seconds = []
    rewind()
    for _ in range(steps):
        synchronise(device)
        start = time.perf_counter()
        replay()
        synchronise(device)
        seconds.append(time.perf_counter() - start)
    rewind()
    synchronise(device)
    start = time.perf_counter()
    for _ in range(steps):
        replay()
    synchronise(device)
    ahead = [(time.perf_counter() - start) / steps] * steps
    each = {"waits": "each step", **rates(seconds, streams)}
    once = {"waits": "once", **rates(ahead, streams)}
    slower, faster = sorted((each, once), key=lambda one: one["tok_per_s"])
    return {**faster, "slower_tok_per_s": slower["tok_per_s"]}


def decode(model, streams, whole, options):
    """Tokens a second of steps after a prompt, one way."""
    length = options.prompt + options.decode
    state = (model.caches(streams, length), *model.tables(length))
    tokens = torch.zeros(streams, 1, dtype=torch.long, device=model.device)
    position = torch.full((1,), options.prompt, dtype=torch.long,
                          device=model.device)
    places = torch.arange(length, device=model.device)
    one_layer = layer if whole else compiled(layer, options)
    one_head = logits if whole else compiled(logits, options)

    def next_tokens(tokens, position):
        mask = (places <= position)[None, None, None, :]
        return model.forward(tokens, position, state, mask, one_layer,
                             one_head).argmax(-1)

    make_next = compiled(next_tokens, options) if whole else next_tokens

    def step():
        tokens.copy_(make_next(tokens, position))
        position.add_(1)

    for _ in range(WARM):
        position.fill_(options.prompt)
        step()
    position.fill_(options.prompt)
    replay = captured(step, model.device)
    replay()
    return timed(replay, lambda: position.fill_(options.prompt), streams,
                 model.device, options.decode)


def prefill(model, options):
    state = (model.caches(1, options.prefill), *model.tables(options.prefill))
    tokens = torch.arange(options.prefill, device=model.device)[None] % 250
    positions = torch.arange(options.prefill, device=model.device)
    one_layer, one_head = compiled(layer, options), compiled(logits, options)
    seconds = []
    for _ in range(WARM + PREFILLS):
        synchronise(model.device)
        start = time.perf_counter()
        model.forward(tokens, positions, state, None, one_layer, one_head)
        synchronise(model.device)
        seconds.append(time.perf_counter() - start)
    return rates(seconds[WARM:], options.prefill)


def ways(options):
    """(name, of FP8: by _scaled_mm; whole step at once)."""
    if options.dtype == "fp8":
        return (("layers, scaled_mm", True, False),
                ("layers, widened weights", False, False))
    return (("layers", None, False), ("whole step", None, True))


def measure(options):
    start, said = time.monotonic(), set()
    best, models = {}, {}
    for way, scaled, whole in ways(options):
        # Both ways of BF16 are of the same weights.
        if scaled not in models:
            models.clear()
            models[scaled] = Model(SHAPES[options.model], options.device,
                                   scaled)
        for streams in options.streams:
            if time.monotonic() - start > options.seconds:
                said.add(f"{way}, {streams} streams")
                continue
            torch.compiler.reset()
            try:
                found = decode(models[scaled], streams, whole, options)
            except (RuntimeError, NotImplementedError) as error:
                found = None
                print(f"{way}, {streams} streams: {error}", file=sys.stderr)
            if found and (streams not in best or found["tok_per_s"]
                          > best[streams]["tok_per_s"]):
                best[streams] = found
                # A reader takes the last line of a number of streams.
                emit("decode", streams=streams, way=way, **found)
        if way == ways(options)[0][0]:
            torch.compiler.reset()
            try:
                emit("prefill", tokens=options.prefill,
                     **prefill(models[scaled], options))
            except (RuntimeError, NotImplementedError) as error:
                print(f"{way}, prefill: {error}", file=sys.stderr)
    emit("torch", version=torch.__version__, left_out=sorted(said))
    return 0 if best else 1


def emit(what, **found):
    print(json.dumps({"what": what, **found}), flush=True)


def seconds_of(work, device, times):
    for _ in range(WARM):
        work()
    synchronise(device)
    start = time.perf_counter()
    for _ in range(times):
        work()
    synchronise(device)
    return (time.perf_counter() - start) / times


def products(n, device):
    """Functions that multiply matrices of n rows and columns, by peak."""
    wide = [torch.randn(n, n, device=device, dtype=torch.bfloat16)
            for _ in range(2)]
    ints = [torch.randint(-127, 127, (n, n), device=device, dtype=torch.int8)
            for _ in range(2)]
    codes = [one.to(torch.float8_e4m3fn) for one in wide]
    scale = torch.ones((), device=device)
    # pylint: disable=protected-access
    return {
        "bf16_tflops": lambda: wide[0] @ wide[1].t(),
        "int8_tops": lambda: torch._int_mm(ints[0], ints[1].t()),
        "fp8_tflops": lambda: torch._scaled_mm(
            codes[0], codes[1].t(), scale_a=scale, scale_b=scale,
            out_dtype=torch.bfloat16),
    }


def matrices(options):
    """Peaks of large products in TFLOP/s, and GB/s of a row's."""
    device = options.device
    n, times = (8192, 20) if device == "cuda" else (256, 2)
    found = {"version": torch.__version__, "n": n}
    for name, work in products(n, device).items():
        try:
            found[name] = 2e-12 * n ** 3 / seconds_of(work, device, times)
        except (RuntimeError, NotImplementedError) as error:
            found[name + "_missing"] = str(error).split("\n", maxsplit=1)[0]
    shapes = ((14336, 4096), (4096, 14336), (32064, 4096))
    for rows, cols in shapes if device == "cuda" else ((256, 64),):
        weight = torch.randn(rows, cols, device=device, dtype=torch.bfloat16)
        x = torch.randn(1, cols, device=device, dtype=torch.bfloat16)
        seconds = seconds_of(lambda x=x, w=weight: functional.linear(x, w),
                             device, 10 * times)
        found[f"linear bf16 {rows}x{cols}"] = {
            "us": seconds * 1e6, "gb_per_s": rows * cols * 2 / seconds * 1e-9}
    emit("matrices", **found)
    return 0


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", choices=SHAPES)
    parser.add_argument("--dtype", choices=("bf16", "fp8"), default="bf16")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--prefill", type=int, default=2048)
    parser.add_argument("--streams", default="1,32,128",
                        type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--eager", action="store_true",
                        help="compiles nothing: to try this program")
    options = parser.parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        skip("PyTorch has no CUDA here")
    torch.manual_seed(0)
    # As gpt-fast has them: skinny products become tuned kernels.
    if options.device == "cuda":
        # pylint: disable-next=import-outside-toplevel
        from torch._inductor import config
        config.coordinate_descent_tuning = True
    with torch.inference_mode():
        return matrices(options) if options.model is None else measure(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
