"""Runs a command, and prints whether it has used more than 400 MB of memory at any time."""

import resource
import subprocess
import sys

subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print("less than 400 MB" if used < 400_000 else f"{used} kB")
