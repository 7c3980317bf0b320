"""Launchers (torchrun, mpirun, horovodrun): started, followed and ended, here and over hosts."""
