"""verl: its own trainer (V1, synchronous), with paceline in the place of vLLM.

    VERL_USE_EXTERNAL_MODULES=paceline_run.rollouts.verl python3 -m verl.trainer.main_ppo \
        actor_rollout_ref.rollout.name=paceline \
        +actor_rollout_ref.rollout.agent.agent_loop_manager_class=paceline_run.rollouts.verl.AgentLoopManager \
        +actor_rollout_ref.rollout.engine_kwargs.paceline.steps=/shared/steps ...

`steps` is the folder of a resident job (`paceline rollout CONFIG --watch /shared/steps`), on a file
system that trainer and job see. verl writes the policy there as a checkpoint where it would send it
to vLLM's workers, tokenizes the prompts as its single-turn agent does, and scores the responses by
its own reward loop unless the job's configuration does. Written against verl 0.9.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from typing import Any, Dict, Generator, List, Tuple

import ray
import torch
import transfer_queue as tq
from tensordict import NonTensorData, NonTensorStack
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from .policies import newest_policy, publish_policy
from ..records import ReaderError
from ..steps import Steps, require_all_prompts, steps_of_environment

#: Files of a model's directory that go with every checkpoint.
BESIDE_WEIGHTS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
)

SHARD_BYTES = 4 << 30  #: of one file of weights, as Hugging Face's own


def steps_of(rollout: Any) -> Steps:
    """The job's folder, of verl's rollout configuration or of PACELINE_STEPS."""
    settings = (rollout.engine_kwargs or {}).get("paceline") or {}
    return Steps(settings["steps"]) if settings.get("steps") else steps_of_environment()


def policies_of(steps: Steps) -> str:
    """The folder of the policy's checkpoints, beside the job's."""
    return steps.folder + "-policies"


class PolicyWriter(base.BaseRollout):
    """What a trainer's worker has in the place of an inference engine: weights go to files."""

    async def resume(self, tags: List[str]) -> None:
        """There is nothing on this device."""

    async def release(self) -> None:
        """Likewise."""

    async def update_weights(
        self,
        weights: Generator[Tuple[str, torch.Tensor], None, None],
        wire_format: str = "named_tensors",
        **kwargs: Any,
    ) -> None:
        """Rank 0 writes the policy; the others take part in gathering it."""
        if wire_format != "named_tensors" or kwargs.get("peft_config") is not None:
            raise ReaderError(
                "the policy is written whole: set rollout.checkpoint_engine.backend=naive, and "
                "model.lora.merge=True with LoRA"
            )
        writes = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        folder = policies_of(steps_of(self.config))
        growing = os.path.join(folder, "growing")
        dtype = getattr(torch, str(self.config.dtype))
        writer = CheckpointWriter(growing, self.model_config.local_path) if writes else None
        for name, tensor in weights:
            if writer is not None:
                writer.add(name, tensor.detach().to("cpu", dtype))
        if writer is not None:
            writer.close()
            publish_policy(folder, int(kwargs["global_steps"]), growing)


class CheckpointWriter:
    """Writes a Hugging Face directory, tensor by tensor. `model`: where its other files are."""

    def __init__(self, path: str, model: str) -> None:
        self._path = path
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        for name in BESIDE_WEIGHTS:
            if os.path.exists(os.path.join(model, name)):
                shutil.copy(os.path.join(model, name), path)
        self._tensors: Dict[str, torch.Tensor] = {}
        self._bytes = 0
        self._files: Dict[str, str] = {}
        self._count = 0

    def add(self, name: str, tensor: torch.Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        if self._tensors and self._bytes + size > SHARD_BYTES:
            self._flush()
        self._tensors[name] = tensor.contiguous().clone()
        self._bytes += size

    def _flush(self) -> None:
        from safetensors.torch import save_file

        self._count += 1
        file = f"model-{self._count:05}.safetensors"
        save_file(self._tensors, os.path.join(self._path, file), metadata={"format": "pt"})
        self._files.update(dict.fromkeys(self._tensors, file))
        self._tensors, self._bytes = {}, 0

    def close(self) -> None:
        self._flush()
        index = os.path.join(self._path, "model.safetensors.index.json")
        with open(index, "w", encoding="utf-8") as file:
            json.dump({"metadata": {}, "weight_map": self._files}, file)


class NoServers(RolloutReplica):
    """verl's inference servers, of which there are none: the job is one for all."""

    async def launch_servers(self) -> None:
        self._server_address = f"paceline-{self.replica_rank}"


class Worker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc, name-defined]
    """verl's agent loop worker, which asks for a whole batch at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls: Dict[str, int] = {}  # of steps, by what their names begin with

    async def generate_sequences(self, batch: Any) -> None:
        task = asyncio.create_task(self._generate(_rows(batch)))
        self.background_tasks.add(task)
        task.add_done_callback(self.background_tasks.discard)

    async def _generate(self, rows: List[Dict[str, Any]]) -> None:
        validate = bool(rows[0].pop("validate", False))
        for row in rows:
            row.pop("validate", None)
        partition = "val" if validate else "train"
        for row in rows:
            await tq.async_kv_put(key=row["uid"], partition_id=partition, tag={"status": "running"})
        status = "failure"
        try:
            await self._generate_all(rows, validate)
            status = "finished"
        except Exception:  # which verl is told of by the status
            logging.getLogger(__name__).exception("a step of paceline failed")
        for row in rows:
            await tq.async_kv_put(key=row["uid"], partition_id=partition, tag={"status": status})

    async def _generate_all(self, rows: List[Dict[str, Any]], validate: bool) -> None:
        rollout = self.config.actor_rollout_ref.rollout
        values = rollout.val_kwargs if validate else rollout
        steps = steps_of(self.rollout_config)
        version = int(rows[0]["global_steps"])
        greedy = validate and not values.do_sample
        request = {
            "model": {"path": newest_policy(policies_of(steps), version), "weight_version": version},
            "prompts": {"samples": int(values.n)},
            "sampling": {
                "temperature": 0.0 if greedy else float(values.temperature),
                "top_p": float(values.top_p),
                "top_k": max(int(values.top_k), 0),
                "max_tokens": int(rollout.response_length),
                "seed": int(rollout.get("seed", 0) or 0),
            },
        }
        if rollout.get("repetition_penalty") not in (None, 1.0):
            request["sampling"]["repetition_penalty"] = float(rollout.repetition_penalty)
        prompts = [
            {"prompt_tokens": self._token_ids(row), **_reward_fields(row)} for row in rows
        ]
        kind = f"{'val' if validate else 'train'}-{version}"
        self._calls[kind] = self._calls.get(kind, -1) + 1
        name = f"{kind}-{self._calls[kind]}"
        steps.forget(name)  # an earlier trainer's
        run = await asyncio.to_thread(steps.submit, name, request, prompts)
        with run:
            require_all_prompts(run, len(rows))
            for response in run.responses():
                row = rows[response.prompt_index]
                output = AgentLoopOutput(
                    prompt_ids=run.prompts[response.prompt_index].tokens.tolist(),
                    response_ids=response.tokens.tolist(),
                    response_mask=response.loss_mask.tolist(),
                    response_logprobs=response.sampling_logprob.tolist(),
                    reward_score=response.reward,
                    num_turns=response.num_turns,
                    metrics=AgentLoopMetrics(),
                    extra_fields={
                        "turn_scores": [],
                        "tool_rewards": [],
                        "global_steps": version,
                        "min_global_steps": version,
                        "max_global_steps": version,
                    },
                )
                fields = {**row, "session_id": response.sample_index}
                await self._agent_loop_postprocess(output, validate, **fields)

    def _token_ids(self, row: Dict[str, Any]) -> List[int]:
        rendered = self.tokenizer.apply_chat_template(
            list(row["raw_prompt"]),
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **dict(self.config.data.get("apply_chat_template_kwargs") or {}),
        )
        return list(rendered["input_ids"])


class AgentLoopManager(AgentLoopManagerTQ):
    """For actor_rollout_ref.rollout.agent.agent_loop_manager_class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(Worker)
        # One step for the whole batch.
        self.rollout_config.agent.num_workers = 1


def _rows(batch: Any) -> List[Dict[str, Any]]:
    """The rows of verl's batch as plain dicts."""
    rows: List[Dict[str, Any]] = [{} for _ in range(len(batch))]
    for key, values in batch.items():
        for i, row in enumerate(rows):
            if isinstance(values, torch.Tensor):
                row[key] = values[i]
            elif isinstance(values, NonTensorStack):
                row[key] = values[i].data
            elif isinstance(values, NonTensorData):
                row[key] = values.data
    return rows


def _reward_fields(row: Dict[str, Any]) -> Dict[str, Any]:
    """The columns by which a job that scores responses itself does so."""
    return {key: row[key] for key in ("data_source", "reward_model", "extra_info") if key in row}


base._ROLLOUT_REGISTRY[("paceline", "async")] = f"{__name__}.PolicyWriter"
RolloutReplicaRegistry.register("paceline", lambda: NoServers)
