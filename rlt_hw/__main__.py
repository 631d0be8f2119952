"""`python -m rlt_hw` is `rlt-hw`."""

import sys

from rlt_hw.cli import main

sys.exit(main())
