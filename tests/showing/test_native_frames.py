"""Frames of C++ and of crashed threads above a failure's report."""

from __future__ import annotations

from jupyter_dist.showing.native_frames import NativeFrames

LEFT_OUT = '… its frames are left out here: print(jupyter_dist.attach("ID").log(1)) shows them'
TORCH = """Exception raised from recvBytes at /pytorch/c10d/Utils.hpp:784 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation) + 0x9d (0x7fe in libc10.so)
#4 c10d::ProcessGroupNCCL::run() from ProcessGroupNCCL.cpp:0
#7 PyObject_Vectorcall from ??:0
#8 cfunction_call from :0
frame #12: main + 0x1 (0x7 in python)"""
CRASH = """Fatal Python error: Segmentation fault

Thread 0x00007fe9db48c6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007fe9fefd1b80 (most recent call first):
  File "<In[1]>", line 14 in <module>

Extension modules: numpy.core (total: 1)"""


def shown(text: str, rank: int = 1) -> list[str]:
    filtered = NativeFrames("ID")
    taken = [(line, filtered.take(rank, line)) for line in text.split("\n")]
    return [line if instead is None else instead for line, instead in taken if instead != ""]


def test_frames_of_cpp_are_one_line() -> None:
    assert shown(f"before\n{TORCH}\nframe 3 of the film\n#3 request from node:80") == [
        "before",
        LEFT_OUT,
        "frame 3 of the film",
        "#3 request from node:80",
    ]


def test_a_crash_is_two_lines_and_what_follows_is_shown() -> None:
    assert shown(f"{CRASH}\nafter\n\n  File by name") == [
        "Fatal Python error: Segmentation fault",
        LEFT_OUT,
        "after",
        "",
        "  File by name",
    ]
