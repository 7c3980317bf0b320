"""Horovod's benchmark for TensorFlow: model, optimizer and data at the top level, a step that is timed.

source: https://github.com/horovod/horovod/blob/master/examples/tensorflow2/tensorflow2_synthetic_benchmark.py
group: horovod-tensorflow
notebook: --backend mpi -np 2
plain: mpirun --allow-run-as-root --oversubscribe -np 2 python LEGACY_SCRIPT
compared: losses, weights and moving statistics, to 1e-6
changed: nothing
"""

# %%
import argparse
import timeit

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--fp16-allreduce", action="store_true", default=False)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--num-batches-per-iter", type=int, default=3)
parser.add_argument("--num-iters", type=int, default=2)
args = parser.parse_args([])

# %%
draw = np.random.default_rng(0)
model = tf.keras.Sequential(
    [layers.Dense(16), layers.BatchNormalization(), layers.ReLU(), layers.Dense(10, activation="softmax")]
)
model.build((None, 12))
model.set_weights([0.1 + 0.2 * draw.random(w.shape).astype("float32") for w in model.get_weights()])
opt = tf.optimizers.SGD(0.01)
data = tf.constant(draw.random((args.batch_size, 12), dtype="float32"))
target = tf.constant(draw.integers(0, 10, args.batch_size))
losses = []


# %%
@tf.function
def benchmark_step(first_batch):
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    with tf.GradientTape() as tape:
        probs = model(data, training=True)
        loss = tf.losses.SparseCategoricalCrossentropy()(target, probs)
    tape = hvd.DistributedGradientTape(tape, compression=compression)
    gradients = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(gradients, model.trainable_variables))
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables, root_rank=0)
    return loss


def log(s, nl=True):
    if hvd.rank() != 0:
        return
    print(s, end="\n" if nl else "")


# %%
hvd.init()
losses.append(float(benchmark_step(first_batch=True)))
img_secs = []
for _ in range(args.num_iters):
    time = timeit.timeit(
        lambda: losses.append(float(benchmark_step(first_batch=False))), number=args.num_batches_per_iter
    )
    img_secs.append(args.batch_size * args.num_batches_per_iter / time)
log("Img/sec per CPU: %.1f +-%.1f" % (np.mean(img_secs), 1.96 * np.std(img_secs)))
{
    "rank": hvd.rank(),
    "losses": losses,
    "weights": [w.flatten().tolist() for w in model.get_weights()],
}
