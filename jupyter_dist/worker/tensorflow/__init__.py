"""tf.distribute on a rank."""
