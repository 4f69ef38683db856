"""What every room may use: files written whole, digests, errors in one
line, intervals, the environment."""
