"""Makes the suite's own package importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
