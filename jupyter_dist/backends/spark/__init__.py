"""Places on a Spark cluster: tasks of a barrier stage that hold slots, and one program for each machine.

`barrier_task` runs on the executors, `dialled` takes the connections that tasks make to this machine,
`spark_sessions` has the ways to a cluster, and `task_slots` puts these together.
`driver_ranks` needs none of it.
"""
