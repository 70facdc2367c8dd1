"""Writes the TorchScript archives of this folder: python make_archives.py DIR"""

import pathlib
import sys

import torch
from torch import nn


class Child(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(2, 3, bias=False)
        self.register_buffer("steps", torch.tensor(7))

    def forward(self, x):
        return self.map(x)


class Nested(nn.Module):
    """state_dict(): scale, offset, child.steps, child.map.weight, tied.weight; the last two are one tensor."""

    def __init__(self):
        super().__init__()
        self.child = Child()
        self.register_buffer("offset", torch.arange(3.0))
        self.scale = nn.Parameter(torch.tensor([0.5, 0.25, 0.125], dtype=torch.bfloat16))
        self.tied = self.child.map
        with torch.no_grad():
            self.tied.weight.copy_(torch.arange(6.0).reshape(3, 2))

    def forward(self, x):
        return self.child(x) * self.scale + self.offset + self.tied(x)


class Projections(nn.Module):
    """Parameters under the names of a causal module of 8 features: W_QKV and W_O, each with weight and bias."""

    def __init__(self):
        super().__init__()
        self.W_QKV = nn.Linear(8, 24)
        self.W_O = nn.Linear(8, 8)
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters()):
                parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + 1000 * number)

    def forward(self, x):
        return self.W_O(self.W_QKV(x)[..., :8])


class Bare(nn.Module):
    def forward(self, x):
        return x + 1


folder = pathlib.Path(sys.argv[1])
nested = torch.jit.script(Nested().eval())
nested.save(folder / "nested.ts")
torch.jit.freeze(nested).save(folder / "frozen.ts")
torch.jit.trace(Projections(), torch.zeros(2, 8)).save(folder / "traced.ts")
torch.jit.script(Bare()).save(folder / "no_parameters.ts")
