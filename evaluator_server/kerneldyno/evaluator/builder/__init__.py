"""The builder of a node: it has native code built before a candidate gets a device, and keeps what was built.

Reading order: `service` answers the server, `plan` learns from a scout which libraries a candidate wants, `workshop` has
each of them built once, and `cache` keeps them. The builder is trusted and runs no candidate: scouts and compilers are
processes with the same walls as runners, and with no device at all.
"""
