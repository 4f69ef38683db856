"""The library's speed, operation by operation, against its peers and its limits."""
