#!/usr/bin/env python3
"""Makes a random model of a real shape as a quantised GGUF.

Blocks have random codes, and scales that give every matrix about the values of
a trained one. The vocabulary is like that of make_model.py: " t5 t17" is
[5, 17], so that a server can run on the file. Other engines read it as well.
The same arguments always give the same bytes. Needs the packages gguf and
numpy (build/venv has both).

  make_gguf.py --preset llama1b --type Q4_0 --out /tmp/llama1b-q4_0.gguf
  make_gguf.py --preset glm64 --type Q4_0 --out /tmp/glm64-q4_0.gguf
  make_gguf.py --preset smollm2 --type Q4_K --out /tmp/smollm2-q4_k.gguf
"""

import argparse
import math

import gguf
import numpy as np

PRESETS = {
    # The shape of Llama-3.2-1B, with a tied head: 1.24 B parameters.
    "llama1b": dict(arch="llama", layers=16, hidden=2048, heads=32,
                    kv_heads=8, head_dim=64, ffn=8192, vocab=128256,
                    theta=500000.0, context=131072),
    # The shape of SmolLM2-135M, its rows filled up to whole blocks of 256.
    "smollm2": dict(arch="llama", layers=30, hidden=768, heads=12, kv_heads=4,
                    head_dim=64, ffn=1536, vocab=49152, theta=100000.0,
                    context=8192),
    # 64 experts of which 8 answer a token, and one that always does: 2.1 B
    # parameters, 0.4 B of them active.
    "glm64": dict(arch="glm4moe", layers=8, hidden=1024, heads=16, kv_heads=4,
                  head_dim=64, ffn=2048, vocab=32000, theta=1e6,
                  context=131072, experts=64, used=8, expert_ffn=1024),
    # The shape of gpt-oss-20b with 4 of its 24 layers: 2.9 B parameters. As in
    # its released files only the experts are in --type, for which the release
    # has MXFP4; all else is in Q8_0.
    "gptoss4": dict(arch="gpt-oss", layers=4, hidden=2880, heads=64, kv_heads=8,
                    head_dim=64, ffn=2880, vocab=201088, theta=150000.0,
                    context=131072, experts=32, used=4, expert_ffn=2880,
                    window=128),
    # The shape of GLM-4.7-Flash with 4 of its 47 layers and a smaller
    # vocabulary: latent attention, 64 experts of which 4 answer a token, and
    # one that always does; 2.0 B parameters, 0.3 B of them active.
    "flash4": dict(arch="deepseek2", layers=4, hidden=2048, heads=20,
                   kv_heads=1, head_dim=576, ffn=10240, vocab=32000, theta=1e6,
                   context=202752, experts=64, used=4, expert_ffn=1536,
                   q_lora=768, kv_lora=512, nope=192, rope=64, value=256,
                   scale=1.8),
    # The shape of Qwen3-Next-80B-A3B with 8 of its 48 layers, 64 of its 512
    # experts and a smaller vocabulary: the gated delta rule, and gated
    # attention in each fourth layer; 2.1 B parameters, 0.6 B of them active.
    "next8": dict(arch="qwen3next", layers=8, hidden=2048, heads=16,
                  kv_heads=2, head_dim=256, ffn=5120, vocab=32000, theta=1e7,
                  context=262144, experts=64, used=10, expert_ffn=512,
                  rope=64, state=128, key_heads=16, value_heads=32, kernel=4,
                  period=4),
    "tiny": dict(arch="llama", layers=2, hidden=256, heads=4, kv_heads=2,
                 head_dim=64, ffn=512, vocab=512, theta=10000.0, context=2048),
}
TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
         "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4")
# Offsets of the F16 scales in a block, and the root mean square of an element
# at a scale of 1 with random codes and integer scales. MXFP4 has an exponent.
SCALES = {
    "Q8_0": ((0,), 74), "Q4_0": ((0,), 4.6), "Q4_1": ((0, 2), 8.8),
    "Q5_0": ((0,), 9.2), "Q5_1": ((0, 2), 18), "IQ4_NL": ((0,), 66),
    "Q2_K": ((80, 82), 16), "Q3_K": ((108,), 42), "Q4_K": ((0, 2), 320),
    "Q5_K": ((0, 2), 660), "Q6_K": ((208,), 1370), "IQ4_XS": ((0,), 1220),
}


class Blocks:
    """Random stored blocks of one type."""

    def __init__(self, type_name, seed):
        self.type = getattr(gguf.GGMLQuantizationType, type_name)
        self.name = type_name
        self.elements, self.bytes = gguf.GGML_QUANT_SIZES[self.type]
        self.random = np.random.default_rng(seed)

    def matrix(self, rows, cols, std):
        """Rows of blocks whose elements have about this deviation."""
        per_row = cols // self.elements
        blocks = self.random.integers(
            0, 256, (rows * per_row, self.bytes), dtype=np.uint8)
        if self.name == "MXFP4":
            exponent = round(math.log2(std / 2.93)) + 127
            blocks[:, 0] = exponent
        else:
            offsets, rms = SCALES[self.name]
            scale = np.float16(std / rms).view(np.uint16)
            for offset in offsets:
                blocks[:, offset] = int(scale) & 255
                blocks[:, offset + 1] = int(scale) >> 8
        return blocks.reshape(rows, per_row * self.bytes)


class Writer:
    def __init__(self, path, shape, blocks, dense):
        self.file = gguf.GGUFWriter(path, shape["arch"])
        self.shape = shape
        self.blocks = blocks
        self.dense = dense  # of what no expert has

    def keys(self):
        s, file = self.shape, self.file
        file.add_name(f"random-{self.blocks.name}")
        file.add_context_length(s["context"])
        file.add_embedding_length(s["hidden"])
        file.add_block_count(s["layers"])
        file.add_feed_forward_length(s["ffn"])
        file.add_head_count(s["heads"])
        file.add_head_count_kv(s["kv_heads"])
        file.add_key_length(s["head_dim"])
        file.add_value_length(s.get("kv_lora", s["head_dim"]))
        file.add_rope_dimension_count(s.get("rope", s["head_dim"]))
        file.add_rope_freq_base(s["theta"])
        file.add_layer_norm_rms_eps(1e-5)
        file.add_vocab_size(s["vocab"])
        if "experts" in s:
            file.add_expert_count(s["experts"])
            file.add_expert_used_count(s["used"])
            file.add_expert_feed_forward_length(s["expert_ffn"])
        if s["arch"] == "gpt-oss":
            file.add_sliding_window(s["window"])
            file.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            file.add_rope_scaling_factor(32.0)
            file.add_rope_scaling_orig_ctx_len(4096)
        if s["arch"] == "deepseek2":
            file.add_q_lora_rank(s["q_lora"])
            file.add_kv_lora_rank(s["kv_lora"])
            file.add_key_length_mla(s["nope"] + s["rope"])
            file.add_value_length_mla(s["value"])
        if s["arch"] == "qwen3next":
            file.add_expert_shared_feed_forward_length(s["expert_ffn"])
            file.add_ssm_conv_kernel(s["kernel"])
            file.add_ssm_state_size(s["state"])
            file.add_ssm_group_count(s["key_heads"])
            file.add_ssm_time_step_rank(s["value_heads"])
            file.add_ssm_inner_size(s["value_heads"] * s["state"])
            file.add_full_attention_interval(s["period"])
        if s["arch"] in ("glm4moe", "deepseek2"):
            file.add_expert_shared_count(1)
            file.add_leading_dense_block_count(1)
            file.add_expert_weights_scale(s.get("scale", 1.0))
            file.add_expert_weights_norm(True)
            file.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        self.vocabulary()

    def vocabulary(self):
        """Ids as words: " t5" is 5; 0 to 3 are <pad> <s> </s> <end>. The last
        three are the merge that a vocabulary of this kind must have."""
        size = self.shape["vocab"]
        tokens = ["<pad>", "<s>", "</s>", "<end>"]
        tokens += [f" t{i}" for i in range(4, size - 3)]
        tokens += ["\u0120", "t", "\u0120t"]
        kinds = [gguf.TokenType.CONTROL] * 4
        kinds += [gguf.TokenType.USER_DEFINED] * (size - 7)
        kinds += [gguf.TokenType.NORMAL] * 3
        self.file.add_tokenizer_model("gpt2")
        self.file.add_tokenizer_pre("llama-bpe")
        self.file.add_token_list(tokens)
        self.file.add_token_types(kinds)
        self.file.add_token_merges(["\u0120 t"])
        self.file.add_bos_token_id(1)
        self.file.add_eos_token_id(2)
        self.file.add_add_bos_token(False)
        self.file.add_chat_template(
            "{% for m in messages %}{{ m.content }} {% endfor %}")

    def matrix(self, name, rows, cols, std=None):
        data = self.dense.matrix(rows, cols, std or 1 / math.sqrt(cols))
        self.file.add_tensor(name, data, raw_dtype=self.dense.type)

    def stacked(self, name, rows, cols, count=None):
        """Matrices of experts, or of `count` heads."""
        count = count or self.shape["experts"]
        data = self.blocks.matrix(count * rows, cols, 1 / math.sqrt(cols))
        self.file.add_tensor(name, data.reshape(count, rows, -1),
                             raw_dtype=self.blocks.type)

    def delta_rule(self, at):
        s = self.shape
        hidden, state, heads = s["hidden"], s["state"], s["value_heads"]
        values = heads * state
        mixed = 2 * s["key_heads"] * state + values
        self.matrix(at + "attn_qkv.weight", mixed, hidden)
        self.matrix(at + "attn_gate.weight", values, hidden)
        self.matrix(at + "ssm_ba.weight", 2 * heads, hidden)
        conv = self.blocks.random.standard_normal((mixed, s["kernel"]),
                                                  np.float32)
        self.file.add_tensor(at + "ssm_conv1d.weight", conv / 2)
        self.floats(at + "ssm_dt.bias", (heads,), 1)
        self.floats(at + "ssm_a", (heads,), -1)
        self.floats(at + "ssm_norm.weight", (state,), 1)
        self.matrix(at + "ssm_out.weight", hidden, values)

    def gated_attention(self, at):
        s = self.shape
        hidden, heads = s["hidden"], s["heads"] * s["head_dim"]
        kv = s["kv_heads"] * s["head_dim"]
        self.matrix(at + "attn_q.weight", 2 * heads, hidden)
        self.matrix(at + "attn_k.weight", kv, hidden)
        self.matrix(at + "attn_v.weight", kv, hidden)
        self.matrix(at + "attn_output.weight", hidden, heads)
        for name in ("q", "k"):
            self.floats(f"{at}attn_{name}_norm.weight", (s["head_dim"],), 1)

    def latent_attention(self, at):
        s = self.shape
        hidden, heads, rank = s["hidden"], s["heads"], s["kv_lora"]
        self.matrix(at + "attn_q_a.weight", s["q_lora"], hidden)
        self.floats(at + "attn_q_a_norm.weight", (s["q_lora"],), 1)
        self.matrix(at + "attn_q_b.weight", heads * (s["nope"] + s["rope"]),
                    s["q_lora"])
        self.matrix(at + "attn_kv_a_mqa.weight", rank + s["rope"], hidden)
        self.floats(at + "attn_kv_a_norm.weight", (rank,), 1)
        self.stacked(at + "attn_k_b.weight", rank, s["nope"], heads)
        self.stacked(at + "attn_v_b.weight", s["value"], rank, heads)
        self.matrix(at + "attn_output.weight", hidden, heads * s["value"])

    def floats(self, name, shape, value):
        self.file.add_tensor(name, np.full(shape, value, np.float32))

    def tensors(self):
        s = self.shape
        hidden, heads = s["hidden"], s["heads"] * s["head_dim"]
        kv = s["kv_heads"] * s["head_dim"]
        # The head is the embedding: logits of a deviation of about three.
        self.matrix("token_embd.weight", s["vocab"], hidden,
                    3 / math.sqrt(hidden))
        for i in range(s["layers"]):
            at = f"blk.{i}."
            self.floats(at + "attn_norm.weight", (hidden,), 1)
            if "kv_lora" in s:
                self.latent_attention(at)
            elif "state" in s and (i + 1) % s["period"] != 0:
                self.delta_rule(at)
            elif "state" in s:
                self.gated_attention(at)
            else:
                self.matrix(at + "attn_q.weight", heads, hidden)
                self.matrix(at + "attn_k.weight", kv, hidden)
                self.matrix(at + "attn_v.weight", kv, hidden)
                self.matrix(at + "attn_output.weight", hidden, heads)
            norm = ("ffn_norm" if s["arch"] in ("llama", "deepseek2")
                    else "post_attention_norm")
            self.floats(at + norm + ".weight", (hidden,), 1)
            if s["arch"] == "glm4moe":
                self.attention_biases(at)
            if s["arch"] == "gpt-oss":
                self.oss(at)
            elif "experts" in s and (i > 0 or s["arch"] == "qwen3next"):
                self.experts(at)
            else:
                self.mlp(at, "", s["ffn"])
        self.floats("output_norm.weight", (hidden,), 1)
        if s["arch"] != "llama":
            self.matrix("output.weight", s["vocab"], hidden,
                        3 / math.sqrt(hidden))

    def mlp(self, at, suffix, size):
        hidden = self.shape["hidden"]
        self.matrix(f"{at}ffn_gate{suffix}.weight", size, hidden)
        self.matrix(f"{at}ffn_up{suffix}.weight", size, hidden)
        self.matrix(f"{at}ffn_down{suffix}.weight", hidden, size)

    def router(self, at):
        s = self.shape
        router = self.blocks.random.standard_normal(
            (s["experts"], s["hidden"]), np.float32) / math.sqrt(s["hidden"])
        self.file.add_tensor(at + "ffn_gate_inp.weight", router)

    def attention_biases(self, at):
        s = self.shape
        kv = s["kv_heads"] * s["head_dim"]
        for name, size in (("q", s["heads"] * s["head_dim"]), ("k", kv),
                           ("v", kv)):
            self.floats(f"{at}attn_{name}.bias", (size,), 0)

    def oss(self, at):
        """Biases, sinks and experts of a layer of gpt-oss."""
        s = self.shape
        self.attention_biases(at)
        self.floats(at + "attn_output.bias", (s["hidden"],), 0)
        self.floats(at + "ffn_gate_inp.bias", (s["experts"],), 0)
        self.floats(at + "attn_sinks.weight", (s["heads"],), 0)
        self.router(at)
        for name, rows, cols in (("gate", s["expert_ffn"], s["hidden"]),
                                 ("up", s["expert_ffn"], s["hidden"]),
                                 ("down", s["hidden"], s["expert_ffn"])):
            self.stacked(f"{at}ffn_{name}_exps.weight", rows, cols)
            self.floats(f"{at}ffn_{name}_exps.bias", (s["experts"], rows), 0)

    def experts(self, at):
        s = self.shape
        self.router(at)
        if s["arch"] == "qwen3next":
            gate = self.blocks.random.standard_normal(s["hidden"], np.float32)
            self.file.add_tensor(at + "ffn_gate_inp_shexp.weight",
                                 gate / math.sqrt(s["hidden"]))
        else:
            self.floats(at + "exp_probs_b.bias", (s["experts"],), 0)
        self.stacked(at + "ffn_gate_exps.weight", s["expert_ffn"], s["hidden"])
        self.stacked(at + "ffn_up_exps.weight", s["expert_ffn"], s["hidden"])
        self.stacked(at + "ffn_down_exps.weight", s["hidden"], s["expert_ffn"])
        self.mlp(at, "_shexp", s["expert_ffn"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=PRESETS, default="tiny")
    parser.add_argument("--type", choices=TYPES, default="Q4_0")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    shape = dict(PRESETS[args.preset])
    if args.layers:
        shape["layers"] = args.layers
    blocks = Blocks(args.type, args.seed)
    dense = Blocks("Q8_0", args.seed) if shape["arch"] == "gpt-oss" else blocks
    writer = Writer(args.out, shape, blocks, dense)
    writer.keys()
    writer.tensors()
    writer.file.write_header_to_file()
    writer.file.write_kv_data_to_file()
    writer.file.write_tensors_to_file()
    writer.file.close()


if __name__ == "__main__":
    main()
