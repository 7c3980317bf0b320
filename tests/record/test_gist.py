"""The line of an error's message that becomes the headline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_dist.record.failures.gist import gist

KERAS = """in user code:

    File "/lib/keras/trainer.py", line 12, in train_function  *
        return step_function(self, iterator)
    File "/tmp/3.py", line 4, in call  *
        return x @ self.w

    ValueError: Dimensions must be equal, but are 3 and 4 for node MatMul.
"""
LAYER = (
    """Exception encountered when calling Dense.call().

Matrix size-incompatible: In[0]: [32,784], In[1]: [10,784]

Arguments received by Dense.call():
  • inputs=tf.Tensor(shape=(32, 784), dtype=float32)
"""
    + "  • training=True\n" * 20
)
STATE = (
    "Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "
    + ", ".join(f'"layer{number}.weight"' for number in range(40))
    + ", and this is the end"
)
WORKER = (
    "Caught IndexError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    '  File "/lib/torch/worker.py", line 9, in loop\n    data = fetch()\nIndexError: index 7 out of range\n'
)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("bad step", "bad step"),
        ("two\nlines", "two lines"),
        (KERAS, "ValueError: Dimensions must be equal, but are 3 and 4 for node MatMul."),
        (
            "in user code:\n\n    File x, line 3\n    y = f(x)\n    shape mismatch: 3 vs 4",
            "shape mismatch: 3 vs 4",
        ),
        (
            LAYER,
            "Exception encountered when calling Dense.call(). "
            "Matrix size-incompatible: In[0]: [32,784], In[1]: [10,784]",
        ),
        (
            "Graph execution error:\n\nDetected at node A/grads_0 defined at (most recent call last):\n"
            '  File "In[5]", line 3, in <module>\n\n  File "<string>", line 111, in horovod_allreduce\n\n'
            "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt "
            "to allreduce.\n\t [[{{node A/grads_0}}]] [Op:__inference_multi_step_on_iterator_1040]",
            "Horovod has been shut down.",
        ),
        (WORKER, "Caught IndexError in DataLoader worker process 0. IndexError: index 7 out of range"),
        (
            "CUDA error: device-side assert triggered\n" + "Advice for debugging. " * 30,
            "CUDA error: device-side assert triggered",
        ),
        ("in user code:\n\n    File x, line 3\n    shape mismatch: 3 vs 4", "shape mismatch: 3 vs 4"),
        (
            "NCCL error in: /pytorch/NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details), "
            "NCCL version 2.28.9\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
            "Last error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 60",
            "NCCL: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60",
        ),
        (
            "NCCL error in: /pytorch/NCCLUtils.cpp:93, unhandled system error, NCCL version 2.28.9\n"
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed.",
            "NCCL: ncclSystemError: System call (e.g. socket, malloc) or external library call failed.",
        ),
        (
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.18 GiB of "
            "which 16.72 GiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 0 bytes "
            "is reserved. See documentation (https://docs.pytorch.org/docs/stable/notes/cuda.html)",
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.18 GiB of "
            "which 16.72 GiB is free.",
        ),
        (
            "Graph execution error:\n\nDetected at node Reduce defined at (most recent call last):\n"
            '  File "In[4]", line 8, in <module>\n\nCollective ops is aborted by: task:1 is unhealthy\n'
            "The error could be from a previous operation. Restart your program to reset.\n",
            "Collective ops is aborted by: task:1 is unhealthy",
        ),
        ("only:", "only:"),
        ("", ""),
    ],
)
def test_the_line_that_says_something_is_chosen(message: str, line: str) -> None:
    assert gist(message) == line


@pytest.mark.parametrize("message", [STATE, "a" * 300 + " expected 3, got 4", "x " * 900 + "got 4"])
def test_a_long_line_keeps_both_ends(message: str) -> None:
    found = gist(message)
    assert len(found) <= 200
    assert found[:5] == message[:5]
    assert found[-5:] == message[-5:]
    assert " … " in found


@given(st.text(), st.integers(40, 300))
def test_any_message_is_one_short_line(message: str, limit: int) -> None:
    found = gist(message, limit)
    assert len(found) <= limit
    assert "\n" not in found
