"""A GGUF of a llama of two layers whose matrices are zeros."""

import struct

HIDDEN, FFN, VOCAB, HEADS, LAYERS = 256, 512, 64, 4, 2
F32, F16, Q8_0 = 0, 1, 8
BYTES = {F32: (1, 4), F16: (1, 2), Q8_0: (32, 34)}  # elements, bytes of a block
ALIGNMENT = 32


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _pair(key, value):
    kind, data = {
        int: lambda: (4, struct.pack("<I", value)),
        float: lambda: (6, struct.pack("<f", value)),
        str: lambda: (8, _string(value)),
        list: lambda: (9, struct.pack("<IQ", 8, len(value))
                       + b"".join(map(_string, value)))}[type(value)]()
    return _string(key) + struct.pack("<I", kind) + data


def make(kind=F16, padding=0):
    """The file's bytes, matrices of `kind`; `padding` bytes more in the header."""
    keys = {
        "general.architecture": "llama", "llama.block_count": LAYERS,
        "llama.context_length": 2048, "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS, "llama.vocab_size": VOCAB,
        "llama.rope.dimension_count": HIDDEN // HEADS,
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "general.description": "x" * padding,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(VOCAB)]}
    tensors = [("token_embd.weight", (HIDDEN, VOCAB), kind),
               ("output_norm.weight", (HIDDEN,), F32),
               ("output.weight", (HIDDEN, VOCAB), kind)]
    for i in range(LAYERS):
        tensors += [(f"blk.{i}.{name}.weight", (HIDDEN,), F32)
                    for name in ("attn_norm", "ffn_norm")]
        tensors += [(f"blk.{i}.{name}.weight", shape, kind)
                    for name, shape in (
                        ("attn_q", (HIDDEN, HIDDEN)), ("attn_k", (HIDDEN, HIDDEN)),
                        ("attn_v", (HIDDEN, HIDDEN)),
                        ("attn_output", (HIDDEN, HIDDEN)),
                        ("ffn_gate", (HIDDEN, FFN)), ("ffn_up", (HIDDEN, FFN)),
                        ("ffn_down", (FFN, HIDDEN)))]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(_pair(key, value) for key, value in keys.items())
    offset = 0
    for name, shape, of in tensors:
        elements, size = BYTES[of]
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        head += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape),
                                            *shape, of, offset)
        offset += -(-(count // elements * size) // ALIGNMENT) * ALIGNMENT
    head += bytes(-len(head) % ALIGNMENT)
    return head + bytes(offset)
