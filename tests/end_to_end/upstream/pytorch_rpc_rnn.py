"""PyTorch's RNN over RPC: the embedding and the decoder live on a parameter server, the LSTM here.

source: https://github.com/pytorch/examples/blob/main/distributed/rpc/rnn/main.py
group: torch
notebook: --backend torchrun -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses of the trainer, to 1e-6
changed: nothing
"""

# %%
import os

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.nn as nn
import torch.optim as optim
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef


# %%
def _call_method(method, rref, *args, **kwargs):
    return method(rref.local_value(), *args, **kwargs)


def _remote_method(method, rref, *args, **kwargs):
    return rpc.rpc_sync(rref.owner(), _call_method, args=[method, rref, *list(args)], kwargs=kwargs)


def _parameter_rrefs(module):
    return [RRef(param) for param in module.parameters()]


def _start(module):
    for parameter in module.parameters():
        parameter.data = torch.linspace(-0.3, 0.3, parameter.numel()).view_as(parameter)


class EmbeddingTable(nn.Module):
    def __init__(self, ntoken, ninp):
        super(EmbeddingTable, self).__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        _start(self)

    def forward(self, input):
        return self.encoder(input)


class Decoder(nn.Module):
    def __init__(self, ntoken, nhid):
        super(Decoder, self).__init__()
        self.decoder = nn.Linear(nhid, ntoken)
        _start(self)

    def forward(self, output):
        return self.decoder(output)


class RNNModel(nn.Module):
    def __init__(self, ps, ntoken, ninp, nhid, nlayers):
        super(RNNModel, self).__init__()
        self.emb_table_rref = rpc.remote(ps, EmbeddingTable, args=(ntoken, ninp))
        self.rnn = nn.LSTM(ninp, nhid, nlayers)
        _start(self.rnn)
        self.decoder_rref = rpc.remote(ps, Decoder, args=(ntoken, nhid))

    def forward(self, input, hidden):
        emb = _remote_method(EmbeddingTable.forward, self.emb_table_rref, input)
        output, hidden = self.rnn(emb, hidden)
        return _remote_method(Decoder.forward, self.decoder_rref, output), hidden

    def parameter_rrefs(self):
        remote_params = []
        remote_params.extend(_remote_method(_parameter_rrefs, self.emb_table_rref))
        remote_params.extend(_parameter_rrefs(self.rnn))
        remote_params.extend(_remote_method(_parameter_rrefs, self.decoder_rref))
        return remote_params


# %%
def _run_trainer():
    batch, ntoken, ninp, nhid, nindices, nlayers = 5, 7, 2, 3, 6, 2
    hidden = (torch.zeros(nlayers, nindices, nhid), torch.zeros(nlayers, nindices, nhid))
    model = RNNModel("ps", ntoken, ninp, nhid, nlayers)
    opt = DistributedOptimizer(optim.SGD, model.parameter_rrefs(), lr=0.05)
    criterion = torch.nn.CrossEntropyLoss()

    def get_next_batch():
        for number in range(3):
            data = (torch.arange(batch * nindices).view(batch, nindices) + number) % ntoken
            yield data, (data + 1) % ntoken

    losses = []
    for epoch in range(2):
        for data, target in get_next_batch():
            with dist_autograd.context() as context_id:
                hidden[0].detach_()
                hidden[1].detach_()
                output, hidden = model(data, hidden)
                loss = criterion(output.view(-1, ntoken), target.reshape(-1))
                dist_autograd.backward(context_id, [loss])
                opt.step(context_id)
                losses.append(loss.item())
        print("Training epoch {}".format(epoch))
    return losses


def run_worker(rank, world_size):
    losses = None
    if rank == 1:
        rpc.init_rpc("trainer", rank=rank, world_size=world_size)
        losses = _run_trainer()
    else:
        rpc.init_rpc("ps", rank=rank, world_size=world_size)
    rpc.shutdown()
    return losses


# %%
rank = int(os.environ["RANK"])
{"rank": rank, "losses": run_worker(rank, int(os.environ["WORLD_SIZE"]))}
