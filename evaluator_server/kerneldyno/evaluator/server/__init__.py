"""The process of a node: a gRPC server on asyncio, which starts a judge and a zygote for each device.

Reading order: `main` puts the parts together, `settings` reads the command line, `evaluator_service` answers direct
callers, `fleet` and `work` speak with the scheduler, `node` queues attempts, `cell` keeps one device's processes alive.
Nothing here imports torch or touches a device.
"""
