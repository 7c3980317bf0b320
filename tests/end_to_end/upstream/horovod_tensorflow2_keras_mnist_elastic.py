"""Horovod's elastic example for Keras: the decorated function and the model come from earlier cells.

source: https://github.com/horovod/horovod/blob/master/examples/elastic/tensorflow2/tensorflow2_keras_mnist_elastic.py
group: horovod-tensorflow
notebook: --backend horovod -np 2 --min-np 2
plain: horovodrun --gloo --network-interfaces lo -np 2 --min-np 2 --host-discovery-script SLOTS python LEGACY_SCRIPT
compared: the history of `fit` and weights, to 1e-6
changed: nothing
"""

# %%
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

# %%
draw = np.random.default_rng(0)
images = draw.random((256, 8, 8), dtype="float32")
labels = (images.sum((1, 2)) * 10).astype("int64") % 10
model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(4, [3, 3], activation="relu"),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
model.build((None, 8, 8, 1))
model.set_weights([0.3 * draw.standard_normal(w.shape).astype("float32") for w in model.get_weights()])
histories = []


# %%
@hvd.elastic.run
def train(state):
    fitted = state.model.fit(
        dataset,
        steps_per_epoch=12 // hvd.size(),
        epochs=3 - state.epoch,
        callbacks=callbacks,
        verbose=0,
    )
    histories.append([float(loss) for loss in fitted.history["loss"]])


def on_state_reset():
    tf.keras.backend.set_value(state.model.optimizer.lr, 0.001 * hvd.size())
    state.model.fit(dataset, steps_per_epoch=1, epochs=1, callbacks=None)


# %%
hvd.init()
mine = slice(hvd.rank(), None, hvd.size())
dataset = tf.data.Dataset.from_tensor_slices(
    (tf.cast(images[mine, ..., tf.newaxis], tf.float32), tf.cast(labels[mine], tf.int64))
)
dataset = dataset.repeat().batch(16)
opt = tf.optimizers.Adam(0.001 * hvd.size())
opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)
model.compile(loss=tf.losses.SparseCategoricalCrossentropy(), optimizer=opt, metrics=["accuracy"])
model.fit(dataset, steps_per_epoch=1, epochs=1, callbacks=None, verbose=0)
state = hvd.elastic.KerasState(model, batch=0, epoch=0)
state.register_reset_callbacks([on_state_reset])
callbacks = [
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.UpdateBatchStateCallback(state),
    hvd.elastic.CommitStateCallback(state),
]
train(state)
{
    "rank": hvd.rank(),
    "epoch": state.epoch,
    "histories": histories,
    "weights": [w.flatten().tolist() for w in model.get_weights()],
}
