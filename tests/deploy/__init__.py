"""The files of deploy/ and kerneldyno.deploy: light, without a network, a container engine or a cluster."""
