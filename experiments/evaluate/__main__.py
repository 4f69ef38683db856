"""Score anybody's pictures: python -m experiments.evaluate images=... (see experiments.score)."""

import sys

from experiments.score import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
