"""Keras' guide to distributed training with TensorFlow, on several workers: `fit` under a strategy.

source: https://keras.io/guides/distributed_training_with_tensorflow/
group: tensorflow
notebook: -np 2
plain: TF_CONFIG=worker:2 python LEGACY_SCRIPT
compared: the history of `fit`, the evaluation and weights, to 1e-6
changed: nothing
"""

# %%

import keras
import numpy as np
import tensorflow as tf

draw = np.random.default_rng(0)
x_all = draw.random((192, 20), dtype="float32")
y_all = (x_all.sum(1) * 10).astype("int64") % 10
start = [0.3 * draw.standard_normal(shape).astype("float32") for shape in ((20, 16), (16,), (16, 10), (10,))]


# %%
def get_compiled_model():
    inputs = keras.Input(shape=(20,))
    x = keras.layers.Dense(16, activation="relu")(inputs)
    outputs = keras.layers.Dense(10)(x)
    model = keras.Model(inputs, outputs)
    model.set_weights(start)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    return model


def get_dataset():
    batch_size = 32
    return (
        tf.data.Dataset.from_tensor_slices((x_all[:128], y_all[:128])).batch(batch_size),
        tf.data.Dataset.from_tensor_slices((x_all[128:], y_all[128:])).batch(batch_size),
    )


# %%
strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("Number of devices: {}".format(strategy.num_replicas_in_sync))
with strategy.scope():
    model = get_compiled_model()
train_dataset, test_dataset = get_dataset()
fitted = model.fit(train_dataset, epochs=2, verbose=0)
loss, accuracy = model.evaluate(test_dataset, verbose=0)
{
    "rank": strategy.cluster_resolver.task_id,
    "replicas": strategy.num_replicas_in_sync,
    "losses": [float(value) for value in fitted.history["loss"]],
    "evaluated": [float(loss), float(accuracy)],
    "weights": [w.flatten().tolist() for w in model.get_weights()],
}
