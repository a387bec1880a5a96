"""The process of a node: an asyncio gRPC server that starts a judge and a zygote for each device.

Reading order: `main` creates the parts, `settings` reads the command line, `evaluator_service` serves direct callers,
`fleet` and `work` talk to the scheduler, `node` queues attempts, and `cell` keeps one device's processes running.
Nothing here imports torch or uses a device.
"""
