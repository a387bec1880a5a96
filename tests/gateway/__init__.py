"""The HTTP gateway, on real sockets."""
