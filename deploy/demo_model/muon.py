"""The optimizers: Muon for matrices, AdamW for all else."""

import torch

# Newton-Schulz polynomial of fifth degree; after five rounds the singular
# values lie near one.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5


def orthogonalise(matrices):
    """The nearest semi-orthogonal matrices, about, of a batch [N, R, C]."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = a * x + torch.baddbmm(b * gram, gram, gram, alpha=c) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised. A parameter of three dimensions is a batch of
    matrices. Matrices of one shape are worked on together."""

    def __init__(self, parameters, lr=0.02, momentum=0.95, weight_decay=0.01):
        super().__init__(parameters, dict(lr=lr, momentum=momentum,
                                          weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape[-2:],
                                      []).append(parameter)
            for shape, parameters in shapes.items():
                self._step(group, shape, parameters)

    def _step(self, group, shape, parameters):
        updates = []
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            mean, grad = state["momentum"], parameter.grad
            mean.lerp_(grad, 1 - group["momentum"])
            updates.append(grad.lerp(mean, group["momentum"])
                           .reshape(-1, *shape))
        scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
        whole = orthogonalise(torch.cat(updates))
        pieces = whole.split([len(update) for update in updates])
        for parameter, piece in zip(parameters, pieces):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(piece.reshape(parameter.shape), alpha=-scale)


def optimizers(model, muon_lr, adam_lr):
    """Muon takes the matrices inside the layers, but the routers'."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        inside = name.startswith(("layers.", "mtp."))
        matrix = parameter.dim() > 1 and ".gate.weight" not in name
        (matrices if inside and matrix else others).append(parameter)
    return [Muon(matrices, lr=muon_lr),
            torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95),
                              weight_decay=0.0)]
