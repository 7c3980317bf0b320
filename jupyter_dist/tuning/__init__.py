"""A tuning run whose trials are runs of their own: what tries values, starts trials, judges and ends them.

A tuning run is a run without ranks. Its folder holds the payload, the search (in its job) and the ledger of
its trials; each trial is an ordinary run in a folder beside it, with its own supervisor, on whatever backend
was asked for, and is read, shown, attached to and stopped like any other.

The tuning run's supervisor is the ordinary one, on a backend that nobody names: `trials`
(trials_backend.py), which starts trials and no ranks. It lives in a carrier, so that an engine's imports and
threads are nobody else's, and it declares that its work goes on without a supervisor: trials do. So stop,
--timeout, the heartbeat, the kernel's end and a supervisor that takes the run on again are what they are for
every run. Whoever takes a tuning on reads the ledger and the trials' folders, tells a new engine what is
known, and goes on; nothing else is kept.

    trials_backend.py
    tuning_loop.py       one turn: look at the trials that run, end those that are hopeless, start others
    engines/       what to try next, and what is hopeless: one module for each engine
    objective.py   the objective of one trial, read live from what its ranks log
    importance.py  how much each parameter matters
    ledger.py      what is written down, before it is done
    trial_runs.py  a trial's folder, and its start
    warm_start.py  the trials of a parent
"""
