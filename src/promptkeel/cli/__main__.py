"""``python -m promptkeel.cli``."""

import sys

from promptkeel.cli import main

sys.exit(main())
