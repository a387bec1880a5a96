#!/usr/bin/env bash
# Dr. Kernel's RL stage (TRLOO + MRS + PR + PRS, three turns) on stock verl 0.9: the hyperparameters of the released 8B and 14B
# runs, which are the same. README.md beside this file says what differs from them, and what of it has been run.
#
#   SCHEDULER=host:50051 MODEL=/models/cold-start-8b TRAIN=train.parquet VAL=val.parquet examples/verl/drkernel.sh [key=value ...]
#
# PRINT=1 prints the arguments, one a line, instead of training.
set -euo pipefail
: "${SCHEDULER:?host:port of the scheduler, as every machine of the run reaches it}"
: "${MODEL:?the cold-start checkpoint (not the released, final one)}"
: "${TRAIN:?rows written by python -m kerneldyno.verl.dataset}"
: "${VAL:?the same, for validation}"
: "${GPUS:=8}"

# An episode is one row: the prompt, and three responses of at most 8192 tokens with what is said between them.
turns=3 turn_tokens=8192 prompt_length=4096
response_length=$((turns * turn_tokens + (turns - 1) * 2048))
context=$((prompt_length + response_length))

arguments=(
  # what is rewarded, and how often the model may try
  +kerneldyno.address="$SCHEDULER"
  +kerneldyno.reward=drkernel
  +kerneldyno.turns=$turns
  +kerneldyno.turn_tokens=$turn_tokens
  +kerneldyno.void_turns=true
  +kerneldyno.prs.threshold=0.3
  +kerneldyno.prs.softness=0.1
  +kerneldyno.request.num_correct_trials=5
  +kerneldyno.request.num_perf_trials=100
  +kerneldyno.trajectories="${TRAJECTORIES:-trajectories}"
  actor_rollout_ref.rollout.agent.default_agent_loop=kernel_agent

  # advantages: TRLOO, no discount, nothing of the KL in the reward
  algorithm.adv_estimator=trloo
  algorithm.gamma=1.0
  algorithm.use_kl_in_reward=False
  # rejection by mismatch: mrs.yaml
  algorithm.rollout_correction.rollout_is=null
  algorithm.rollout_correction.rollout_rs='seq_mean_k1\,seq_max_k2'
  algorithm.rollout_correction.rollout_rs_threshold='0.999_1.001\,42.415'
  algorithm.rollout_correction.bypass_mode=False
  actor_rollout_ref.rollout.calculate_log_probs=True

  # data: 16 prompts of 16 samples, one optimizer step for all of them
  data.train_files="$TRAIN"
  data.val_files="$VAL"
  data.train_batch_size=16
  data.max_prompt_length=$prompt_length
  data.max_response_length=$response_length
  data.truncation=error
  actor_rollout_ref.rollout.n=16
  actor_rollout_ref.actor.ppo_mini_batch_size=16
  actor_rollout_ref.actor.ppo_epochs=1

  # loss: dual clip; token sums, averaged over turns (a row has three), by 1000
  actor_rollout_ref.actor.clip_ratio_low=0.2
  actor_rollout_ref.actor.clip_ratio_high=0.28
  actor_rollout_ref.actor.clip_ratio_c=3.0
  actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm
  actor_rollout_ref.actor.loss_scale_factor=$((turns * 1000))
  actor_rollout_ref.actor.entropy_coeff=0
  actor_rollout_ref.actor.use_kl_loss=False
  actor_rollout_ref.actor.grad_clip=1.0
  actor_rollout_ref.actor.optim.lr=1e-6
  actor_rollout_ref.actor.optim.weight_decay=0.01
  actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0

  # rollout
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.temperature=1.0
  actor_rollout_ref.rollout.top_p=1.0
  actor_rollout_ref.rollout.top_k=-1
  actor_rollout_ref.rollout.tensor_model_parallel_size=1
  actor_rollout_ref.rollout.gpu_memory_utilization=0.75
  actor_rollout_ref.rollout.max_model_len=$context
  actor_rollout_ref.rollout.max_num_batched_tokens=$context
  actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
  actor_rollout_ref.rollout.val_kwargs.n=8
  actor_rollout_ref.rollout.val_kwargs.do_sample=True
  actor_rollout_ref.rollout.val_kwargs.temperature=1.0
  actor_rollout_ref.rollout.val_kwargs.top_p=0.95

  # memory
  actor_rollout_ref.model.path="$MODEL"
  actor_rollout_ref.model.enable_gradient_checkpointing=True
  actor_rollout_ref.model.use_remove_padding=True
  actor_rollout_ref.actor.use_dynamic_bsz=True
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384
  actor_rollout_ref.actor.ulysses_sequence_parallel_size="${SEQUENCE_PARALLEL:-4}"
  actor_rollout_ref.actor.fsdp_config.param_offload=True
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=True

  # the run
  trainer.n_gpus_per_node="$GPUS"
  trainer.nnodes="${NODES:-1}"
  trainer.save_freq=10
  trainer.test_freq=10
  trainer.val_before_train=True
  trainer.total_epochs=1000
  trainer.project_name=kerneldyno
  trainer.experiment_name="${NAME:-drkernel}"
  trainer.logger='["console"]'
  "$@"
)
if [ -n "${PRINT:-}" ]; then
  printf '%s\n' "${arguments[@]}"
else
  kerneldyno doctor verl --address "$SCHEDULER"
  exec python3 -m verl.trainer.main_ppo "${arguments[@]}"
fi
