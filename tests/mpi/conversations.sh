#!/usr/bin/env bash
# conversations.sh PACELINE [KILLS]: conversations on random layouts keep their digest through kills at random moments, in
# waits for their workers too. Few here; KILLS by hand.
set -euo pipefail
python=$(command -v /usr/bin/python3 || command -v python3)
exec "$python" "$(dirname "$0")/soak.py" "$1" --conversations --kills "${2:-2}" --most-ranks 4
