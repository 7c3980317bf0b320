"""Tuning run, whose trials are runs of their own: choosing values, starting trials, judging and ending them.

A tuning run is a run without ranks. Its folder has the payload, the search (in its job) and the trial ledger.
Each trial is an ordinary run in a folder beside it, with its own supervisor. It uses the backend that the
user chose. A trial is read, shown, attached to and stopped like any other run.

The tuning run has an ordinary supervisor, on the internal backend `trials` (trials_backend.py), which starts
trials and no ranks. The backend runs in a backend process, so that no other process has the engine's imports
and threads. It declares that its work outlives the supervisor, because trials do. So stop, --timeout, the
heartbeat, the kernel's end and a restart of the supervisor work as for every run. A new supervisor reads the
trial ledger and the trials' folders. It passes the known results to a new engine, and continues. Nothing else
is stored.

    trials_backend.py  the backend
    tuning_loop.py     one turn: check the running trials, prune some, start others
    engines/           choice of values and of trials to prune: one module for each engine
    objective.py       the objective of one trial, read live from what its ranks log
    importance.py      the importance of each parameter
    ledger.py          the trial ledger, written before each step
    trial_runs.py      a trial's folder, and its start
    checkpoints.py     what a trial continues from, if a scheduler pauses trials
    warm_start.py      the trials of a parent
    attached_tuning.py the backend of a run that shows a tuning job of somebody else
"""
