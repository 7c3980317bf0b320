"""Support for tf.distribute on a rank."""
