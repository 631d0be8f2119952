"""`python -m rlt_hw.cli`, for where the script is not on the PATH."""

import sys

from rlt_hw.cli import main

sys.exit(main())
