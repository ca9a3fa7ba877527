#!/bin/sh
# The schedule that made the shipped weights. The stages are one run: each goes on from the
# checkpoint of the one before. The decay was re-planned along the way, and the last stage is a
# second, lower decay. For a run of your own, "python train.py target" alone is a good recipe.
# The EAGLE-3 head and the stop policy come after the export: train_speculation.sh.
set -e
cd "$(dirname "$0")"
python train.py target --steps 3000 --decay-from 1500 --ramp 500 --until 220
python train.py target --steps 860 --decay-from 450 --until 388
python train.py target --steps 720 --decay-from 400 --until 456
python train.py target --steps 630 --decay-from 400 --until 496
python train.py target --steps 620 --decay-from 400
cp checkpoints/target.pt checkpoints/target_620.pt
python train.py target --steps 780 --decay-from 350
python train.py draft --seed 2 --steps 20000 --decay-from 10000 --until 360
python train.py draft --seed 2 --steps 560 --decay-from 400 --teacher checkpoints/target_620.pt --until 386
python train.py draft --seed 2 --steps 540 --decay-from 390 --teacher checkpoints/target.pt
# A mixture that begins as the exported draft; its rates were planned anew along the way.
mixture="experts --begin ../../configs/models/draft --seed 3 --ramp 0 --muon-lr 0.01 --adam-lr 2e-3"
python train.py $mixture --steps 53 --decay-from 25
python train.py $mixture --steps 330 --decay-from 130 --until 125
python train.py $mixture --steps 200 --decay-from 115
# The model that calls a calculator begins as the exported draft too; its rates were planned anew along the way.
caller="calculator --begin ../../configs/models/draft --seed 5 --ramp 0 --muon-lr 0.01 --adam-lr 2e-3 --tokens-per-step 4096"
python train.py $caller --steps 900 --decay-from 500 --until 149
python train.py $caller --steps 450 --decay-from 250 --until 225
python train.py $caller --steps 300 --decay-from 225
# The model that reads pictures begins as the exported draft too.
python train_pictures.py --steps 3000 --decay-from 1500 --until 363
python train_pictures.py --steps 900 --decay-from 550
# The model of latent attention is new, but for its embedding; its rates were planned anew along the way.
python train_latent.py --steps 500 --decay-from 250 --until 225
python train_latent.py --steps 440 --decay-from 240 --until 285
python train_latent.py --steps 400 --decay-from 240
