"""What a benchmark needs before it runs: data sets prepared, weights fetched, a machine
looked at."""
