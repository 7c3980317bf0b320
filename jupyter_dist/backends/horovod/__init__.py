"""The backend `horovod`: its options, elastic runs, and the discovery of their hosts."""
