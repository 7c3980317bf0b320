"""Launchers (torchrun, mpirun, horovodrun): started, followed and stopped, on one host or several."""
