"""Which keys of other tools state which fact, one fact a line."""

from __future__ import annotations

import re
from types import MappingProxyType

_TABLE = """
model.name = model model_id model_name model_name_or_path base_model base_model_name base_model_id
    base_model_name_or_path model_path pretrained_model pretrained_model_name_or_path _name_or_path model.id
    model.name model.model_id model.base
model.revision = model_revision model.revision
model.parameters = total_params total_parameters num_parameters n_params model.parameters num_params
model.trainable_parameters = trainable_params trainable_parameters model.trainable_parameters
    number_of_trainable_parameters
dataset.name = dataset dataset_name dataset_id train_dataset dataset_key dataset.name dataset.id data.dataset
dataset.rows = train_samples num_examples num_train_examples train_size n_train training_samples dataset.rows
    dataset.size
evaluation.set = eval_set evalset eval_dataset
evaluation.items = n_items eval_samples num_eval_examples n_examples total_examples
evaluation.seconds = eval_runtime
evaluation.scored = n_scored num_scored scored
training.steps_planned = num_steps max_steps total_steps training_steps num_train_steps num_training_steps
    train_steps steps_planned total_optimization_steps training.steps steps
training.step = step global_step
training.steps_done = steps_done steps_completed completed_steps final_step last_step
    num_steps_completed
training.epochs_planned = num_train_epochs num_epochs epochs max_epochs n_epochs
training.epochs_done = epoch
training.sequence_length = max_seq_length max_seq_len seq_length seq_len sequence_length max_length context_length
    max_sequence_length block_size
training.batch_size = batch_size train_batch_size
training.microbatch_size = per_device_batch_size per_device_train_batch_size micro_batch_size
    batch_size_per_device train_micro_batch_size_per_gpu instantaneous_batch_size_per_device
training.effective_batch_size = effective_batch_size total_batch_size global_batch_size total_train_batch_size
training.accumulation_steps = gradient_accumulation_steps grad_accum grad_accum_steps accumulation_steps
    grad_accumulation
training.optimizer = optimizer optim optimizer.name optimizer_name
training.learning_rate = learning_rate lr peak_lr
training.schedule = lr_scheduler_type scheduler lr_schedule schedule
training.method = method training_method finetuning_type finetune_method peft_type algorithm
training.mixed_precision = mixed_precision
training.dtype = dtype precision compute_dtype
model.dtype = torch_dtype
training.seed = seed random_seed
training.loop = framework
device.kind = accelerator device device_name device_type device_kind hardware tpu_type active_device using_device
    device_used
device.gpu = gpu gpu_name gpu_model gpu_type
device.platform = device_platform backend jax_backend default_backend
device.count = device_count num_devices n_devices gpu_count num_gpus n_gpus world_size
code.commit = commit commit_sha git_commit git_sha git_hash commit_hash git_revision code_commit git.commit
    code.commit sha
run.id = run_id run_name run_version experiment_name
run.status = status run_status
run.command = command cmd
run.started_at = started_at start_time train_start startedat
run.finished_at = finished_at end_time completed_at train_end
result.last_loss = final_loss last_loss final_train_loss final_training_loss train_loss_final loss_final
result.mean_loss = mean_loss avg_loss average_loss average_train_loss mean_train_loss avg_train_loss
result.best_loss = best_loss min_loss lowest_loss minimum_loss
result.first_loss = first_loss initial_loss start_loss starting_loss
result.loss = loss train_loss training_loss
result.best_metric = best_metric
result.train_seconds = train_runtime training_time_seconds train_seconds training_seconds train_time_s
run.wall_seconds = _runtime runtime_seconds duration_seconds
training.save_steps = save_steps
training.weight_decay = weight_decay
training.warmup_steps = warmup_steps num_warmup_steps lr_warmup_steps
training.warmup_ratio = warmup_ratio
training.gradient_clipping = max_grad_norm gradient_clipping grad_clip clip_grad_norm gradient_clip_val
lora.rank = lora_r lora_rank peft.r lora.r lora.rank lora_config.r
lora.alpha = lora_alpha lora.alpha
lora.dropout = lora_dropout lora.dropout
result.tokens_seen = num_input_tokens_seen tokens_seen total_tokens num_tokens
result.peak_memory_gb = peak_memory_gb peak_gpu_memory_gb max_memory_allocated_gb
"""

_names: dict[str, list[str]] = {}
for _name, _keys in re.findall(r"^(\S+) = ((?:.+\n)(?: .+\n)*)", _TABLE, re.MULTILINE):
    _names[_name] = _keys.split()

KEYS_OF_FACT = MappingProxyType(_names)
"""The keys of each fact, written with underscores; `group.key` where the key alone would not state it."""
