"""The backend `spark`: tasks of a barrier stage occupy slots, and one agent per machine runs in them.

`barrier_task` runs on the executors. `task_connections` accepts the connections from tasks to this machine.
`sessions` opens the connection to a cluster. `slots` combines these. `driver_ranks` needs none of them.
"""
