"""Horovod's example for Keras: a model from an earlier cell, a wrapped optimizer, callbacks, `fit`.

source: https://github.com/horovod/horovod/blob/master/examples/tensorflow2/tensorflow2_keras_mnist.py
group: horovod-tensorflow
notebook: --backend horovod -np 2
plain: horovodrun --gloo -np 2 python LEGACY_SCRIPT
compared: the history of `fit` and weights, to 1e-6
changed: nothing
"""

# %%
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

# %%
draw = np.random.default_rng(0)
mnist_images = draw.random((256, 8, 8), dtype="float32")
mnist_labels = (mnist_images.sum((1, 2)) * 10).astype("int64") % 10
mnist_model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(4, [3, 3], activation="relu"),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(16, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
mnist_model.build((None, 8, 8, 1))
mnist_model.set_weights(
    [0.3 * draw.standard_normal(w.shape).astype("float32") for w in mnist_model.get_weights()]
)

# %%
hvd.init()
mine = slice(hvd.rank(), None, hvd.size())
dataset = tf.data.Dataset.from_tensor_slices(
    (
        tf.cast(mnist_images[mine, ..., tf.newaxis], tf.float32),
        tf.cast(mnist_labels[mine], tf.int64),
    )
)
dataset = dataset.repeat().shuffle(128, seed=1).batch(16)
scaled_lr = 0.001 * hvd.size()
opt = tf.optimizers.Adam(scaled_lr)
opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)
mnist_model.compile(loss=tf.losses.SparseCategoricalCrossentropy(), optimizer=opt, metrics=["accuracy"])
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=2, verbose=1),
]
verbose = 2 if hvd.rank() == 0 else 0
fitted = mnist_model.fit(
    dataset, steps_per_epoch=12 // hvd.size(), callbacks=callbacks, epochs=3, verbose=verbose
)
{
    "rank": hvd.rank(),
    "losses": [float(loss) for loss in fitted.history["loss"]],
    "weights": [w.flatten().tolist() for w in mnist_model.get_weights()],
}
