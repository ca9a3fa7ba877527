"""Writes a RADAR network of random weights, which stops drafts anywhere: random_stop.py DIR. Needs nothing but Python."""

import sys
from pathlib import Path

from random_model import write

STATES, HIDDEN = 10, 128
write(Path(sys.argv[1]), {}, {
    "lstm.weight_ih_l0": [4 * HIDDEN, STATES], "lstm.weight_hh_l0": [4 * HIDDEN, HIDDEN],
    "lstm.bias_ih_l0": [4 * HIDDEN], "lstm.bias_hh_l0": [4 * HIDDEN],
    "mlp.0.weight": [HIDDEN, HIDDEN + STATES], "mlp.0.bias": [HIDDEN], "mlp.3.weight": [2, HIDDEN], "mlp.3.bias": [2],
}, single=True)
