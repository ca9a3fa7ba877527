#!/bin/sh
# The EAGLE-3 head of the embedded target, and a stop policy for it (not shipped), as made from a
# run's rollouts: sh train_speculation.sh ROLLOUTS
set -e
rollouts=$(realpath "$1")
cd "$(dirname "$0")"
models=../../configs/models
python train_eagle3.py "$rollouts" $models/target --output $models/eagle3 \
    --rate 3e-3 --steps 1100 --tokens-per-step 1024 --longest 640
python evaluate_eagle3.py $models/target $models/eagle3 --count 32 --samples 2 --limit 1024 \
    --output $models/eagle3/figures.json
mkdir -p checkpoints
python radar_data.py check "$rollouts" $models/target $models/eagle3 --points 16 --samples 500
python radar_data.py record "$rollouts" $models/target $models/eagle3 checkpoints/radar.h5 --points 4096
python radar.py checkpoints/radar.h5 --output checkpoints/radar
