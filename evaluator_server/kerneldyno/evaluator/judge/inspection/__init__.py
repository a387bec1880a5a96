"""What a right candidate does inside, seen by NVIDIA's tools: hardware counters, and errors of memory.

Each tool gets a process of its own, in the same sandbox, after the candidate was judged and outside of any lease
(`watched`). What the tools say comes from the candidate's process. Counters are advice and change no verdict
(`counters`). Errors of memory may (`sanitizer`): a candidate that hides them was right all the same.
"""
