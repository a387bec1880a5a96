"""Tests of the HTTP gateway, on real sockets."""
