"""The values that settings choose among, where more than one file needs them."""

STAGES = ("generate", "evaluate", "time", "report")
DTYPES = ("float32", "float16", "bfloat16")  # by torch's names
ATTENTION = ("fused", "math")
SCHEDULERS = ("plms", "ddim", "dpm++2m", "euler")
SPLITS = ("tune", "report")
LARGEST = "largest"  # of timing.batch_size
