"""What merging costs and saves, against `tomesd`, `ca_tome` and no merging, in one process."""
