"""TensorFlow's tutorial on parameter servers: a coordinator schedules steps; other tasks serve.

source: https://www.tensorflow.org/tutorials/distribute/parameter_server_training
group: tensorflow
notebook: -np 3 --chief --ps 1
plain: TF_CONFIG=chief:1,worker:1,ps:1 python SCRIPT
compared: the chief's losses and variables, to 1e-6
changed: nothing
"""

# %%
import numpy as np
import tensorflow as tf

feature_vocab = ["avenger", "ironman", "batman", "hulk"]
draw = np.random.default_rng(0)
features = draw.integers(0, len(feature_vocab), (64, 3))
labels = (features[:, 0] == 0).astype("float32")[:, None]


# %%
def dataset_fn(_):
    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(16).repeat()


class Classifier(tf.Module):
    def __init__(self):
        super().__init__()
        table = np.linspace(-1, 1, len(feature_vocab) * 4, dtype="float32").reshape(-1, 4)
        self.table = tf.Variable(table)
        self.kernel = tf.Variable(tf.ones((4, 1)) * 0.5)
        self.bias = tf.Variable(tf.zeros((1,)))

    def __call__(self, ids):
        return tf.reduce_mean(tf.gather(self.table, ids), 1) @ self.kernel + self.bias


# %%
cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if cluster_resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        cluster_resolver.cluster_spec(),
        job_name=cluster_resolver.task_type,
        task_index=cluster_resolver.task_id,
        protocol=cluster_resolver.rpc_layer or "grpc",
        start=True,
    )
    server.join()
variable_partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(max_shards=1)
strategy = tf.distribute.ParameterServerStrategy(cluster_resolver, variable_partitioner=variable_partitioner)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    model = Classifier()


@tf.function
def step_fn(iterator):
    def replica_fn(inputs):
        batch_data, target = inputs
        with tf.GradientTape() as tape:
            logits = model(batch_data)
            per_example_loss = tf.nn.sigmoid_cross_entropy_with_logits(target, logits)
            loss = tf.nn.compute_average_loss(per_example_loss[:, 0])
        for gradient, variable in zip(
            tape.gradient(loss, model.trainable_variables), model.trainable_variables
        ):
            variable.assign_sub(0.5 * tf.convert_to_tensor(gradient))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_fn, args=(next(iterator),)), None)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)


per_worker_iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
losses = []
for _ in range(6):
    scheduled = coordinator.schedule(step_fn, args=(per_worker_iterator,))
    coordinator.join()
    losses.append(float(scheduled.fetch()))
{
    "rank": 0,
    "task": cluster_resolver.task_type,
    "losses": losses,
    "variables": [v.numpy().flatten().tolist() for v in model.trainable_variables],
}
