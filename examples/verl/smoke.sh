#!/usr/bin/env bash
# One GPU, a small model, a few steps: does everything hold together? It is the recipe with smaller numbers, so what it does not
# change it tests. A model of this size writes hardly any kernel that runs: look at the plumbing, not at the reward.
#
#   SCHEDULER=127.0.0.1:50051 MODEL=Qwen/Qwen2.5-Coder-0.5B-Instruct TRAIN=train.parquet VAL=val.parquet examples/verl/smoke.sh
#
# The evaluator wants a GPU of its own: timings beside a trainer are noise. With one GPU in all, let the evaluator have
# --devices cpu, which cannot profile, and add kerneldyno.prs=null here.
set -euo pipefail
export GPUS=1 SEQUENCE_PARALLEL=1 NAME="${NAME:-smoke}"
exec "$(dirname "$0")/drkernel.sh" \
  data.train_batch_size=2 \
  data.max_prompt_length=3072 \
  data.max_response_length=5120 \
  actor_rollout_ref.rollout.n=4 \
  actor_rollout_ref.actor.ppo_mini_batch_size=2 \
  actor_rollout_ref.rollout.max_model_len=8192 \
  actor_rollout_ref.rollout.max_num_batched_tokens=8192 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \
  actor_rollout_ref.rollout.val_kwargs.n=1 \
  actor_rollout_ref.rollout.agent.num_workers=2 \
  reward.num_workers=1 \
  kerneldyno.turns=2 \
  kerneldyno.turn_tokens=2048 \
  trainer.total_training_steps=3 \
  trainer.val_before_train=False \
  trainer.test_freq=-1 \
  trainer.save_freq=-1 \
  "$@"
