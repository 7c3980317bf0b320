"""PyTorch's example of FSDP2: layers sharded one by one, mixed precision, a checkpoint that is loaded again.

source: https://github.com/pytorch/examples/blob/main/distributed/FSDP2/example.py
group: torch
notebook: --backend torchrun -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses and each rank's shards, exactly
changed: nothing
"""

# %%
import argparse
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard


# %%
@dataclass
class ModelArgs:
    n_layers: int = 2
    vocab_size: int = 32
    max_seq_len: int = 8
    dim: int = 16
    n_heads: int = 4


class TransformerBlock(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.norm = nn.LayerNorm(args.dim)
        self.qkv = nn.Linear(args.dim, 3 * args.dim)
        self.out = nn.Linear(args.dim, args.dim)
        self.n_heads = args.n_heads

    def forward(self, x):
        q, k, v = (
            y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1)
        )
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.tok = nn.Embedding(args.vocab_size, args.dim)
        self.pos = nn.Embedding(args.max_seq_len, args.dim)
        self.layers = nn.ModuleList([TransformerBlock(args) for _ in range(args.n_layers)])
        self.output = nn.Linear(args.dim, args.vocab_size)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos(torch.arange(tokens.size(1)))
        for layer in self.layers:
            x = layer(x)
        return self.output(x)

    def reset_parameters(self):
        for module in self.modules():
            if module is not self and hasattr(module, "reset_parameters"):
                module.reset_parameters()


def inspect_model(model: FSDPModule):
    assert isinstance(model, Transformer)
    assert isinstance(model, FSDPModule)
    for param in model.parameters():
        assert param.placements == (Shard(0),)
        assert isinstance(param, DTensor)


# %%
parser = argparse.ArgumentParser(description="FSDP2")
parser.add_argument("--explicit-prefetching", action="store_true", default=False)
parser.add_argument("--mixed-precision", action="store_true", default=False)
args = parser.parse_args(["--mixed-precision", "--explicit-prefetching"])
model_args = ModelArgs()
fsdp_kwargs = {}
if args.mixed_precision:
    fsdp_kwargs["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
with torch.device("meta"):
    model = Transformer(model_args)


# %%
def main(args):
    rank = int(os.environ["LOCAL_RANK"])
    torch.distributed.init_process_group(backend="gloo")
    torch.manual_seed(0)
    for layer in model.layers:
        fully_shard(layer, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    inspect_model(model)
    if args.explicit_prefetching:
        model.layers[0].set_modules_to_forward_prefetch([model.layers[1]])
        model.layers[1].set_modules_to_backward_prefetch([model.layers[0]])
    model.to_empty(device="cpu")
    model.reset_parameters()
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        if args.explicit_prefetching:
            model.unshard()
        x = torch.randint(0, model_args.vocab_size, (4, model_args.max_seq_len))
        loss = F.cross_entropy(model(x).float().flatten(0, 1), x.roll(1, 1).flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optim.step()
        optim.zero_grad()
        losses.append(loss.item())
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole = get_model_state_dict(model, options=options)
    if rank == 0:
        torch.save(whole, "model.pt")
    return {
        "rank": rank,
        "losses": losses,
        "shards": [p.to_local().flatten().tolist() for p in model.parameters()],
        "whole": sorted(whole),
    }


# %%
main(args)
