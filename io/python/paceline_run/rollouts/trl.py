"""TRL's rollout_func by a resident job.

    GRPOTrainer(..., rollout_func=rollout_func)       # the folder is what PACELINE_STEPS names
    GRPOTrainer(..., rollout_func=TrlRollout(steps))  # or that of a Steps object
"""

from __future__ import annotations

import collections
import os
from typing import Any, Dict, List, Mapping, Optional

from ..complete import open_run
from ..records import PathLike, ReaderError
from ..steps import Steps, require_all_prompts, steps_of_environment, unsupported
from ..trl_rollout import TrlPrompt, trl_key, trl_lists
from .policies import policy_path, publish_policy


def rollout_func(prompts: List[TrlPrompt], trainer: Any) -> Dict[str, List[Any]]:
    """A rollout_func by the job whose folder the environment variable PACELINE_STEPS names."""
    return TrlRollout(steps_of_environment())(prompts, trainer)


class TrlRollout:
    """A rollout_func of TRL's GRPOTrainer by a resident job. Called on all processes of the trainer.

    Each call writes the policy as a checkpoint and asks for one step: the trainer's own sampling
    parameters, its tokenizer and chat template (the job gets token ids), and as many responses to
    each prompt as the prompts say. Which response a process gets does not depend on how many there
    are.
    """

    #: Of the trainer's arguments, what has no counterpart, and the values with which it does nothing.
    NEUTRAL: Dict[str, List[Any]] = {
        "generation_kwargs": [None, {}],
        "cache_implementation": [None],
    }

    def __init__(
        self,
        steps: Steps,
        policies: Optional[PathLike] = None,
        request: Mapping[str, Any] = {},
    ) -> None:
        """`policies`: where checkpoints go that the job reads; none: FOLDER-policies.
        `request`: further keys for every step, by sections."""
        self.steps = steps
        self.policies = os.path.abspath(os.fspath(policies or steps.folder + "-policies"))
        self.request = request
        self._saved: Optional[int] = None  # the step whose policy has been written

    def __call__(self, prompts: List[TrlPrompt], trainer: Any) -> Dict[str, List[Any]]:
        from accelerate.utils import broadcast_object_list, gather_object

        refused = unsupported(vars(trainer.args), self.NEUTRAL)
        if refused:
            raise ReaderError(f"paceline has no {', '.join(refused)}; leave them to their defaults")
        step = trainer.state.global_step
        keys = [trl_key(prompt) for prompt in prompts]
        everyone = gather_object([list(zip(keys, self._token_ids(prompts, trainer)))])
        pairs = [pair for one in everyone for pair in one]
        counts = collections.Counter(key for key, _ in pairs)  # in order of first occurrence
        policy = self._save(trainer, step)
        place: List[Optional[str]] = [None]
        if trainer.accelerator.is_main_process:
            ids = dict(pairs)
            mode = "train" if trainer.model.training else "eval"
            name = f"{mode}-{step}-{self._calls(step, mode)}"
            run = self.steps.submit(
                name,
                self._step_request(trainer, policy, step, max(counts.values())),
                prompts=[{"prompt_tokens": ids[key]} for key in counts],
            )
            place[0] = os.path.dirname(run.path)
            run.close()
        broadcast_object_list(place)
        assert place[0] is not None
        with open_run(place[0]) as run:
            require_all_prompts(run, len(counts))
            samples = len(run) // len(counts)
            number = {key: i for i, key in enumerate(counts)}
            taken: Dict[str, int] = collections.Counter()
            rows = []
            for key, _ in pairs:
                rows.append(number[key] * samples + taken[key])
                taken[key] += 1
            first = sum(len(one) for one in everyone[: trainer.accelerator.process_index])
            return trl_lists(run, rows[first : first + len(prompts)], "sampling")

    def _calls(self, step: int, mode: str) -> int:
        """How often the job has been asked at this step: a call of its own is a step of its own."""
        asked = [name for name in os.listdir(self.steps.folder) if name.startswith(f"{mode}-{step}-")]
        return sum(name.endswith(".yaml") for name in asked)

    def _token_ids(self, prompts: List[TrlPrompt], trainer: Any) -> List[List[int]]:
        """As the trainer itself would tokenize them."""
        processing = trainer.processing_class
        if isinstance(prompts[0], str):
            return [list(ids) for ids in processing(text=prompts)["input_ids"]]
        rendered = processing.apply_chat_template(
            conversation=prompts,
            chat_template=getattr(trainer, "chat_template", None),
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **(getattr(trainer, "chat_template_kwargs", None) or {}),
        )
        return [list(ids) for ids in rendered["input_ids"]]

    def _save(self, trainer: Any, step: int) -> str:
        """The policy as a checkpoint. On all processes, whose parts of the weights may differ."""
        growing = os.path.join(self.policies, "growing")
        if self._saved != step:
            trainer.save_model(growing, _internal_call=True)
            trainer.accelerator.wait_for_everyone()
            if trainer.accelerator.is_main_process:
                publish_policy(self.policies, step, growing)
        trainer.accelerator.wait_for_everyone()
        self._saved = step
        return policy_path(self.policies, step)

    def _step_request(
        self, trainer: Any, policy: str, step: int, samples: int
    ) -> Dict[str, Dict[str, Any]]:
        args = trainer.args
        request: Dict[str, Dict[str, Any]] = {
            "model": {"path": policy, "weight_version": step},
            "prompts": {"samples": samples},
            "sampling": {
                "temperature": args.temperature,
                "top_k": max(args.top_k or 0, 0),
                "top_p": args.top_p,
                "min_p": args.min_p or 0.0,
                "max_tokens": args.max_completion_length,
                "seed": args.seed,
            },
        }
        if args.repetition_penalty not in (None, 1.0):
            request["sampling"]["repetition_penalty"] = args.repetition_penalty
        for section, keys in self.request.items():
            request.setdefault(section, {}).update(keys)
        return request
