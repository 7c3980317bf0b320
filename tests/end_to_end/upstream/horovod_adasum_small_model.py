"""Horovod's small model for Adasum: gradients reduced by hand, with an operation that was chosen by name.

source: https://github.com/horovod/horovod/blob/master/examples/adasum/adasum_small_model.py
group: horovod-torch
notebook: --backend horovod -np 2
plain: horovodrun -np 2 python SCRIPT
compared: parameters after each step, exactly
changed: nothing
"""

# %%
import argparse

import horovod.torch as hvd
import numpy as np
import torch


# %%
def square(x):
    return x * x - 20.0 * x + 50.0


class Net(torch.nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.param = torch.nn.Parameter(torch.FloatTensor([1.0, -1.0]))

    def forward(self, x):
        return x * x + self.param[0] * x + self.param[1]


args = argparse.Namespace(op="Adasum", learning_rate=0.1, x_max=1.0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate)


# %%
def train(args):
    hvd.init()
    steps = []
    np.random.seed(1 + hvd.rank())
    torch.manual_seed(1234)
    for _ in range(20):
        features = torch.Tensor(np.random.rand(1) * 2 * args.x_max - args.x_max)
        optimizer.zero_grad()
        loss = torch.nn.MSELoss()(net(features), square(features))
        loss.backward()
        op = hvd.Adasum if args.op == "Adasum" else hvd.Average
        net.param.grad.data = hvd.allreduce(net.param.grad.data, op=op)
        optimizer.step()
        steps.append([loss.item(), *net.param.tolist()])
    return {"rank": hvd.rank(), "steps": steps}


# %%
train(args)
