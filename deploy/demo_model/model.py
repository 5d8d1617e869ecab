"""GLM-4.5's architecture in plain PyTorch, for training: the model, its
multi-token-prediction layer, and its tensors under their released names.

Experts are kept as one tensor per kind, [experts, out, in], so that the
optimizer works on all of them at once; `released` splits them.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class RootMeanSquare(torch.autograd.Function):
    """x / sqrt(mean(x^2) + eps) * weight, with a third of the passes over
    memory that the composite of it takes on CPUs."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        wide = torch.promote_types(x.dtype, torch.float32)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
        scale = (length.square() / x.shape[-1] + eps).rsqrt().to(x.dtype)
        unit = x * scale
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight

    @staticmethod
    def backward(ctx, grad):
        unit, scale, weight = ctx.saved_tensors
        inner = grad * weight
        along = (inner * unit).mean(-1, keepdim=True)
        to_weight = (grad * unit).flatten(0, -2).sum(0)
        return (inner - unit * along) * scale, to_weight, None


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return RootMeanSquare.apply(x, self.weight.to(x.dtype), self.eps)


def rope_tables(config, positions):
    """cos and sin [B, T, 1, R] of the first R dimensions of every head."""
    rotary = int(config["head_dim"] * config["partial_rotary_factor"])
    inverse = 1.0 / config["rope_theta"] ** (
        torch.arange(0, rotary, 2, device=positions.device).float() / rotary)
    angles = positions[:, :, None, None].float() * inverse
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Half-split rotation of the first dimensions; the others pass."""
    size = cos.shape[-1]
    turned, kept = x[..., :size], x[..., size:]
    left, right = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat([-right, left], dim=-1) * sin
    return torch.cat([turned.to(x.dtype), kept], dim=-1)


class Chats:
    """Which tokens of packed rows are one chat, for the attention: chats of
    about one length together, so that little is computed in vain."""

    GROUPS = 4

    def __init__(self, documents):
        """`documents` [B, T]: a chat's tokens lie behind one another in a row
        and have its number; below zero is unused."""
        device, size = documents.device, documents.shape[1]
        flat = documents.cpu() + torch.arange(len(documents))[:, None] * size
        flat[documents.cpu() < 0] = -1
        numbers, lengths = flat.flatten().unique_consecutive(
            return_counts=True)
        starts = lengths.cumsum(0) - lengths
        starts, lengths = starts[numbers >= 0], lengths[numbers >= 0]
        order = lengths.argsort(stable=True)
        self.tokens, back, done = [], torch.zeros(documents.numel(),
                                                  dtype=int), 0
        for some in order.tensor_split(min(self.GROUPS, len(order))):
            longest = int(lengths[some].max())
            offsets = torch.arange(longest)[None]
            inside = offsets < lengths[some][:, None]
            # Behind a short chat's end its last token again: nobody sees it.
            tokens = starts[some][:, None] + offsets.minimum(
                lengths[some][:, None] - 1)
            places = done + torch.arange(tokens.numel()).view(tokens.shape)
            back[tokens[inside]] = places[inside]
            done += tokens.numel()
            self.tokens.append(tokens.to(device))
        self.back = back.view(documents.shape).to(device)


def attend(q, k, v):
    """Causal attention [N, heads, T, D], spelled out: for chats as short as
    ours several times as fast on CPUs as the fused one in BF16."""
    size = q.shape[-2]
    later = torch.full((size, size), -torch.inf, dtype=q.dtype,
                       device=q.device).triu(1)
    scores = torch.baddbmm(later, q.flatten(0, 1), k.flatten(0, 1).mT,
                           alpha=q.shape[-1] ** -0.5)
    return (scores.softmax(-1) @ v.flatten(0, 1)).view(q.shape)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, size = config["hidden_size"], config["head_dim"]
        heads, kv = (config["num_attention_heads"],
                     config["num_key_value_heads"])
        self.size, self.groups = size, heads // kv
        self.q_proj = nn.Linear(hidden, heads * size)
        self.k_proj = nn.Linear(hidden, kv * size)
        self.v_proj = nn.Linear(hidden, kv * size)
        self.o_proj = nn.Linear(heads * size, hidden, bias=False)
        self.q_norm = Norm(size, config["rms_norm_eps"])
        self.k_norm = Norm(size, config["rms_norm_eps"])

    def forward(self, x, cos, sin, chats):
        shape = (*x.shape[:2], -1, self.size)
        q = self.q_norm(self.q_proj(x).view(shape))
        k = self.k_norm(self.k_proj(x).view(shape))
        v = self.v_proj(x).view(shape)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        q, k, v = (t.flatten(0, 1) for t in (q.to(v.dtype), k.to(v.dtype), v))
        outputs = []
        for tokens in chats.tokens:
            one, two, three = (t[tokens].transpose(1, 2) for t in (q, k, v))
            two, three = (t.repeat_interleave(self.groups, dim=1)
                          for t in (two, three))
            out = attend(one, two, three)
            outputs.append(out.transpose(1, 2).flatten(2).flatten(0, 1))
        return self.o_proj(torch.cat(outputs)[chats.back])


class Mlp(nn.Module):
    def __init__(self, hidden, size):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, size, bias=False)
        self.up_proj = nn.Linear(hidden, size, bias=False)
        self.down_proj = nn.Linear(size, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Router(nn.Module):
    """Sigmoid scores; the correction bias chooses and does not weigh."""

    def __init__(self, config):
        super().__init__()
        experts = config["n_routed_experts"]
        self.top = config["num_experts_per_tok"]
        self.scale = config["routed_scaling_factor"]
        self.weight = nn.Parameter(torch.empty(experts,
                                               config["hidden_size"]))
        self.register_buffer("e_score_correction_bias", torch.zeros(experts))
        self.register_buffer("load", torch.zeros(experts), persistent=False)

    def forward(self, x):
        """Of tokens [N, H]: chosen experts [N, top] and their weights."""
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.float(), self.weight.float()).sigmoid()
        choice = scores.detach() + self.e_score_correction_bias
        experts = choice.topk(self.top, dim=-1).indices
        weights = scores.gather(1, experts)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        with torch.no_grad():
            self.load += torch.bincount(experts.flatten(),
                                        minlength=len(self.load))
        return experts, weights * self.scale

    @torch.no_grad()
    def balance(self, rate):
        """Loss-free balancing: lifts experts that had less than the mean."""
        self.e_score_correction_bias += rate * torch.sign(
            self.load.mean() - self.load)
        self.load.zero_()


class Experts(nn.Module):
    def __init__(self, config):
        super().__init__()
        shape = (config["n_routed_experts"], config["moe_intermediate_size"],
                 config["hidden_size"])
        self.gate_proj = nn.Parameter(torch.empty(shape))
        self.up_proj = nn.Parameter(torch.empty(shape))
        self.down_proj = nn.Parameter(torch.empty(shape).mT.contiguous())

    def forward(self, x, experts, weights):
        """Each expert once, on the tokens that chose it."""
        top = experts.shape[1]
        chosen = experts.flatten()
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=len(self.gate_proj))
        outputs = [
            F.linear(F.silu(F.linear(rows, gate)) * F.linear(rows, up), down)
            for rows, gate, up, down in zip(
                x[order // top].split(counts.tolist()),
                self.gate_proj.unbind(), self.up_proj.unbind(),
                self.down_proj.unbind())]
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        y = torch.cat(outputs)[back].view(len(x), top, -1)
        return (y * weights.to(y.dtype)[..., None]).sum(1)


class Moe(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = Router(config)
        self.experts = Experts(config)
        self.shared_experts = Mlp(
            config["hidden_size"],
            config["moe_intermediate_size"] * config["n_shared_experts"])

    def forward(self, x):
        flat = x.flatten(0, 1)
        routed = self.experts(flat, *self.gate(flat))
        return routed.view(x.shape) + self.shared_experts(x)


class Layer(nn.Module):
    def __init__(self, config, dense):
        super().__init__()
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = Norm(hidden, eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = Norm(hidden, eps)
        self.mlp = (Mlp(hidden, config["intermediate_size"]) if dense
                    else Moe(config))

    def forward(self, x, cos, sin, chats):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, chats)
        return x + self.mlp(self.post_attention_layernorm(x))


class Mtp(Layer):
    """One more layer: from a position's final state and the next token to
    the token after that."""

    def __init__(self, config):
        super().__init__(config, dense=False)
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        self.enorm, self.hnorm = Norm(hidden, eps), Norm(hidden, eps)
        self.eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.shared_head = nn.ModuleDict({"norm": Norm(hidden, eps)})

    def forward(self, state, embedded, cos, sin, chats):
        both = torch.cat([self.enorm(embedded), self.hnorm(state)], dim=-1)
        x = super().forward(self.eh_proj(both), cos, sin, chats)
        return self.shared_head["norm"](x)


class Model(nn.Module):
    """`forward` gives the final states [B, T, H] of the model and of its MTP
    layer; `head` makes logits of either."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        hidden, count = config["hidden_size"], config["num_hidden_layers"]
        self.embed_tokens = nn.Embedding(config["vocab_size"], hidden)
        self.layers = nn.ModuleList(
            Layer(config, dense=i < config["first_k_dense_replace"])
            for i in range(count))
        self.norm = Norm(hidden, config["rms_norm_eps"])
        self.mtp = Mtp(config)
        self.head = nn.Linear(hidden, config["vocab_size"], bias=False)
        self.initialise()

    @torch.no_grad()
    def initialise(self):
        residual = 1.0 / math.sqrt(2 * self.config["num_hidden_layers"])
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
            elif name.startswith("embed_tokens"):
                parameter.normal_(std=0.5)
            elif parameter.dim() > 1:
                std = 0.5 / math.sqrt(parameter.shape[-1])
                if "o_proj" in name or "down_proj" in name:
                    std *= residual
                parameter.normal_(std=std)
        for layer in [*self.layers, self.mtp]:  # sharper than one at birth
            layer.self_attn.q_norm.weight.fill_(1.5)
            layer.self_attn.k_norm.weight.fill_(1.5)

    def forward(self, ids, positions, documents):
        """Rows hold several chats: a token sees the earlier ones of its own
        (of the same number in `documents`)."""
        cos, sin = rope_tables(self.config, positions)
        chats = Chats(documents)
        embedded = self.embed_tokens(ids)
        x = embedded
        for layer in self.layers:
            x = layer(x, cos, sin, chats)
        x = self.norm(x)
        following = F.pad(embedded[:, 1:], (0, 0, 0, 1))
        return x, self.mtp(x, following, cos, sin, chats)

    def routers(self):
        """The routers by layer, that of the MTP layer last."""
        return [layer.mlp.gate for layer in [*self.layers, self.mtp]
                if isinstance(layer.mlp, Moe)]

    def released(self):
        """(name, tensor) as the released checkpoints name and store them:
        BF16, but the correction biases in F32."""
        behind = f"layers.{len(self.layers)}."
        for name, tensor in self.state_dict().items():
            name = name.replace("mtp.", behind, 1)
            name = ("lm_head.weight" if name == "head.weight"
                    else "model." + name)
            if name.endswith("e_score_correction_bias"):
                yield name, tensor.float().contiguous()
                continue
            tensor = tensor.to(torch.bfloat16)
            if ".mlp.experts." not in name:
                yield name, tensor.contiguous()
                continue
            before, kind = name.rsplit(".", 1)
            for i, one in enumerate(tensor):
                yield f"{before}.{i}.{kind}.weight", one.contiguous()

    @torch.no_grad()
    def take_released(self, tensors):
        """Loads what `released` gave; refuses missing and odd names."""
        left = dict(tensors)
        state = self.state_dict()
        for name, _ in self.released():
            if name not in left:
                raise ValueError(f"the checkpoint has no {name}")
        behind = f"model.layers.{len(self.layers)}."
        for name, tensor in state.items():
            public = name.replace("mtp.", behind.removeprefix("model."), 1)
            public = ("lm_head.weight" if name == "head.weight"
                      else "model." + public)
            if ".mlp.experts." in public:
                before, kind = public.rsplit(".", 1)
                tensor.copy_(torch.stack(
                    [left.pop(f"{before}.{i}.{kind}.weight")
                     for i in range(len(tensor))]))
            else:
                tensor.copy_(left.pop(public))
        if left:
            raise ValueError(f"the checkpoint has {len(left)} odd tensors, "
                             f"such as {next(iter(left))}")
