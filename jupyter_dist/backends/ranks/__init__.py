"""The shared part of backends about ranks: their start here, their environment, their placement."""
