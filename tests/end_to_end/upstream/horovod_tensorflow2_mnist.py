"""Horovod's example for TensorFlow: a function with a custom step under `tf.function`.

source: https://github.com/horovod/horovod/blob/master/examples/tensorflow2/tensorflow2_mnist.py
group: horovod-tensorflow
notebook: --backend mpi -np 2
plain: mpirun --allow-run-as-root --oversubscribe -np 2 python LEGACY_SCRIPT
compared: losses and weights, to 1e-6
changed: nothing
"""

# %%
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

draw = np.random.default_rng(0)
images = draw.random((256, 8, 8), dtype="float32")
labels = (images.sum((1, 2)) * 10).astype("int64") % 10
start = [
    0.3 * draw.standard_normal(shape).astype("float32") for shape in ((3, 3, 1, 4), (4,), (36, 10), (10,))
]


# %%
def main():
    hvd.init()
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    mine = slice(hvd.rank(), None, hvd.size())
    dataset = tf.data.Dataset.from_tensor_slices(
        (tf.cast(images[mine, ..., tf.newaxis], tf.float32), tf.cast(labels[mine], tf.int64))
    )
    dataset = dataset.repeat().shuffle(128, seed=1).batch(16)
    mnist_model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(4, [3, 3], activation="relu"),
            tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    mnist_model.build((None, 8, 8, 1))
    mnist_model.set_weights(start)
    loss = tf.losses.SparseCategoricalCrossentropy()
    opt = tf.optimizers.Adam(0.001 * hvd.size())
    checkpoint = tf.train.Checkpoint(model=mnist_model, optimizer=opt)

    @tf.function
    def training_step(images, labels, first_batch):
        with tf.GradientTape() as tape:
            probs = mnist_model(images, training=True)
            loss_value = loss(labels, probs)
        tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(loss_value, mnist_model.trainable_variables)
        opt.apply_gradients(zip(grads, mnist_model.trainable_variables))
        if first_batch:
            hvd.broadcast_variables(mnist_model.variables, root_rank=0)
            hvd.broadcast_variables(opt.variables(), root_rank=0)
        return loss_value

    losses = []
    for batch, (batch_images, batch_labels) in enumerate(dataset.take(16 // hvd.size())):
        loss_value = training_step(batch_images, batch_labels, batch == 0)
        losses.append(float(loss_value))
        if batch % 4 == 0 and hvd.rank() == 0:
            print("Step #%d\tLoss: %.6f" % (batch, loss_value))
    if hvd.rank() == 0:
        checkpoint.save("./checkpoints")
    return {
        "rank": hvd.rank(),
        "losses": losses,
        "weights": [w.flatten().tolist() for w in mnist_model.get_weights()],
    }


# %%
main()
