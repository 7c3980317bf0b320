"""TensorFlow's tutorial on several workers with a custom loop: a distributed step, a metric, a checkpoint.

source: https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl
group: tensorflow
notebook: -np 2
plain: TF_CONFIG=worker:2 python SCRIPT
compared: losses, accuracy and weights, to 1e-6
changed: nothing
"""

# %%
import json
import os

import numpy as np
import tensorflow as tf

per_worker_batch_size = 16
num_epochs = 2
num_steps_per_epoch = 4

draw = np.random.default_rng(0)
x_train = draw.random((128, 8, 8), dtype="float32")
y_train = (x_train.sum((1, 2)) * 10).astype("int64") % 10
start = [0.3 * draw.standard_normal(shape).astype("float32") for shape in ((64, 16), (16,), (16, 10), (10,))]


# %%
def dataset_fn(global_batch_size, input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(batch_size).repeat()


def build_cnn_model():
    regularizer = tf.keras.regularizers.L2(1e-5)
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(8, 8)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(16, activation="relu", kernel_regularizer=regularizer),
            tf.keras.layers.Dense(10, kernel_regularizer=regularizer),
        ]
    )
    model.set_weights(start)
    return model


def _is_chief(task_type, task_id, cluster_spec):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


# %%
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
global_batch_size = per_worker_batch_size * num_workers
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    multi_worker_model = build_cnn_model()
    multi_worker_dataset = strategy.distribute_datasets_from_function(
        lambda input_context: dataset_fn(global_batch_size, input_context)
    )
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.05)
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = multi_worker_model(x, training=True)
            per_example_loss = loss_object(y, predictions)
            loss = tf.nn.compute_average_loss(per_example_loss)
            loss += tf.nn.scale_regularization_loss(tf.add_n(multi_worker_model.losses))
        grads = tape.gradient(loss, multi_worker_model.trainable_variables)
        optimizer.apply_gradients(zip(grads, multi_worker_model.trainable_variables))
        train_accuracy.update_state(y, predictions)
        return loss

    per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


resolver = strategy.cluster_resolver
checkpoint_dir = "ckpt" if _is_chief(resolver.task_type, resolver.task_id, None) else "ckpt_temp"
losses, accuracies = [], []
for epoch in range(num_epochs):
    iterator = iter(multi_worker_dataset)
    for _ in range(num_steps_per_epoch):
        losses.append(float(train_step(iterator)))
    accuracies.append(float(train_accuracy.result()))
    train_accuracy.reset_state()
    print("Epoch: %d, accuracy: %f, train_loss: %f." % (epoch, accuracies[-1], losses[-1]))
{
    "rank": resolver.task_id,
    "losses": losses,
    "accuracies": accuracies,
    "weights": [w.flatten().tolist() for w in multi_worker_model.get_weights()],
}
