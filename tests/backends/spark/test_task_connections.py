"""The connections of Spark's tasks to the driver, without Spark."""

from __future__ import annotations

from typing import Any

from jupyter_dist.backends.spark import barrier_task
from jupyter_dist.backends.spark.slots import Slots, Step
from jupyter_dist.backends.spark.task_connections import Listener
from tests.rigs.stopwatch import WaitFor


def _task(partition: int, machine: str, gpus: list[str]) -> dict[str, Any]:
    return {"partition": partition, "hostname": machine, "machine": machine, "gpus": gpus}


def test_the_stage_program_of_a_machine_gets_the_gpus_of_all_its_tasks(wait_for: WaitFor) -> None:
    def no_session() -> Any:
        raise AssertionError

    slots = Slots(
        3, "stage", no_session, driver_address=None, program="", word="word", grace_s=60.0, wait_s=1.0
    )
    listener = slots._listener = Listener("127.0.0.1", "127.0.0.1")
    told = [_task(0, "a", ["0"]), _task(1, "a", ["1"]), _task(2, "b", [])]
    tasks = [barrier_task._dial(listener.address, listener.key, about) for about in told]
    driver: list[Any] = []
    try:
        wait_for(lambda: slots.look() is Step.HELD)
        driver = [slots.take("a"), slots.take("b")]
        assert barrier_task._ordered(tasks[0]) == (barrier_task.HOST, ["0", "1"])
        assert barrier_task._ordered(tasks[2]) == (barrier_task.HOST, [])
        driver[0].sendall(b"for the program")
        assert barrier_task.receive(tasks[0], 15) == b"for the program"
        listener.end()
        assert barrier_task._ordered(tasks[1]) == (barrier_task.END, [])
    finally:
        listener.close()
        for connection in (*tasks, *driver):
            connection.close()
