"""What makes a pipeline faster: one accelerator a file, behind one contract."""
