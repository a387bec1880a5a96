"""Tests of deploy/ and kerneldyno.deploy; they need no other machine, no container engine and no cluster."""
