#!/bin/sh
# The EAGLE-3 head of the embedded target, and a stop policy for it, as made from a run's rollouts:
# sh train_speculation.sh ROLLOUTS PACELINE
set -e
rollouts=$(realpath "$1")
paceline=$(realpath "$2")
cd "$(dirname "$0")"
models=../../configs/models
config=../../configs/quickstart.yaml
mkdir -p checkpoints

# In two parts: a schedule of 2,300 steps that was left at 950, and another from there to zero.
python train_eagle3.py "$rollouts" $models/target --output checkpoints/eagle3 \
    --rate 3e-3 --steps 2300 --stop-after 950 --tokens-per-step 1024 --longest 640
python train_eagle3.py "$rollouts" $models/target --begin checkpoints/eagle3 --output $models/eagle3 --seed 2 \
    --rate 1.8e-3 --steps 600 --warm-up 20 --follow-one-in 8 --tokens-per-step 1024 --longest 640
python evaluate_eagle3.py $models/target $models/eagle3 --count 32 --samples 2 --limit 1024 \
    --output $models/eagle3/figures.json

head="speculation.drafters=[{method: eagle3, path: $models/eagle3, noise: false
"$paceline" rollout $config --output checkpoints/recorded --set prompts.path=../../configs/prompts/train.jsonl \
    --set prompts.samples=1 --set engine.max_batch=4 --set "$head, max_tokens: 59, record_stops: 16}]" \
    --set speculation.policy=fixed --set speculation.paths=10
"$paceline" profile $config --set engine.threads=1 --set "$head}]" --set speculation.paths=10 --output checkpoints/costs.yaml
python radar.py checkpoints/recorded/telemetry.h5 --costs checkpoints/costs.yaml --output $models/radar
