"""TensorFlow's MultiWorkerMirroredStrategy as a script of SageMaker's, which has made TF_CONFIG.

source: https://sagemaker.readthedocs.io/en/v2.257.0/frameworks/tensorflow/using_tf.html#training-with-multiworkermirroredstrategy
flags: --distribution mwms --instance-count 2 -np 2
"""

import argparse
import json
import os

import numpy as np
import tensorflow as tf


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--model_dir", type=str)
    parser.add_argument("--sm-model-dir", type=str, default=os.environ.get("SM_MODEL_DIR"))
    parser.add_argument("--train", type=str, default=os.environ.get("SM_CHANNEL_TRAINING"))
    parser.add_argument("--hosts", type=list, default=json.loads(os.environ.get("SM_HOSTS")))
    parser.add_argument("--current-host", type=str, default=os.environ.get("SM_CURRENT_HOST"))
    return parser.parse_known_args()


def load(folder, name):
    arrays = np.load(os.path.join(folder, "digits.npz"))
    return arrays[f"{name}_images"].transpose(0, 2, 3, 1), arrays[f"{name}_labels"]


def build():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(3e-3),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


if __name__ == "__main__":
    args, _ = parse_args()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(1)
    images, labels = load(args.train, "train")
    print(f"Train in batches of {args.batch_size}", flush=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=1)
    data = data.batch(args.batch_size).with_options(options)
    with strategy.scope():
        model = build()
    model.fit(data, epochs=args.epochs, verbose=2)
    images, labels = load(args.train, "test")
    accuracy = float(np.mean(model(images).numpy().argmax(1) == labels))
    print(f"Test set: Accuracy: {accuracy:.2%}", flush=True)
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
        model.save(os.path.join(args.sm_model_dir, "model.keras"))

accuracy
