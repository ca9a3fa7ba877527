"""verl's data set with pictures, by its own classes, through a rollout of the embedded model to a
batch of which transformers computes the log-probabilities again.

Needs paceline, and: pip install verl torch torchvision transformers datasets tensordict qwen_vl_utils
pyarrow pillow codetiming.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "io", "python"))
import paceline_reader as reader  # noqa: E402
from needs import needs  # noqa: E402
from paceline_run.prompts import convert  # noqa: E402

MODEL = os.path.join(ROOT, "configs", "models", "pictures")
PROMPTS = os.path.join(ROOT, "configs", "prompts")
SAMPLES = 4
ROWS = 8


@needs("verl", "torch", "torchvision", "transformers", "datasets", "qwen_vl_utils", "tensordict", "pyarrow", "PIL")
class Pictures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = os.environ.get("PACELINE_PROGRAM")
        if program is None:
            raise unittest.SkipTest("paceline was not built")
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.parquet = os.path.join(cls.folder, "train.parquet")
        cls.write_parquet()
        prompts = os.path.join(cls.folder, "train.jsonl")
        convert(cls.parquet, prompts)
        settings = {
            "prompts.path": prompts,
            "prompts.samples": SAMPLES,
            "sampling.max_tokens": 32,
            "engine.threads": 1,
            "engine.backend": "cpu",
            "output.directory": os.path.join(cls.folder, "run"),
        }
        arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        launch = os.path.join(ROOT, "tests", "mpi", "launch.sh")
        done = subprocess.run(
            [launch, "2", program, "rollout", os.path.join(ROOT, "configs", "pictures.yaml"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise AssertionError(done.stdout)

    @classmethod
    def write_parquet(cls):
        """Rows as verl's preprocessing of geo3k makes them, pictures as an image feature's bytes; and
        one of text alone."""
        import pyarrow
        import pyarrow.parquet

        rows = []
        with open(os.path.join(PROMPTS, "pictures.jsonl"), encoding="utf-8") as file:
            for line in list(file)[:ROWS]:
                row = json.loads(line)
                del row["uid"]
                images = []
                for name in row["images"]:
                    with open(os.path.join(PROMPTS, name), "rb") as picture:
                        images.append({"bytes": picture.read(), "path": None})
                rows.append({**row, "images": images})
        rows[3] = {**rows[3], "prompt": [{"role": "user", "content": "How many are green?"}], "images": []}
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), cls.parquet)

    def setUp(self):
        from transformers import AutoTokenizer, Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

        tokenizer = AutoTokenizer.from_pretrained(MODEL)
        self.processor = Qwen2VLProcessor(
            image_processor=Qwen2VLImageProcessor.from_pretrained(MODEL),
            tokenizer=tokenizer,
            video_processor=Qwen2VLVideoProcessor(patch_size=4),
            chat_template=tokenizer.chat_template,
        )
        self.run_ = reader.open_run(os.path.join(self.folder, "run"))
        self.addCleanup(self.run_.close)

    def test_prompts_are_those_of_verl(self):
        from omegaconf import OmegaConf
        from verl.utils.dataset.rl_dataset import RLHFDataset
        from verl.utils.tokenizer import build_multimodal_processor_inputs

        config = OmegaConf.create(
            {"cache_dir": os.path.join(self.folder, "cache"), "filter_overlong_prompts": False, "return_raw_chat": True}
        )
        data = RLHFDataset(self.parquet, self.processor.tokenizer, config, self.processor)
        self.assertEqual(len(data), ROWS)
        for index, prompt in enumerate(self.run_.prompts):
            messages = data[index]["raw_prompt"]
            # As its agent loop does it.
            images, _, _ = data._process_multi_modal_info(messages, data.image_patch_size, config)
            text = self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            made = build_multimodal_processor_inputs(self.processor, text=[text], images=images)
            self.assertEqual(prompt.tokens.tolist(), made["input_ids"][0].tolist())
            grids = [picture.grid for picture in prompt.pictures]
            wanted = made["image_grid_thw"].tolist() if images else []
            self.assertEqual([list(grid) for grid in grids], wanted)
        self.assertEqual(sum(len(prompt.pictures) for prompt in self.run_.prompts), 9)

    def test_log_probabilities_of_the_batch(self):
        import torch
        from transformers import Qwen2VLForConditionalGeneration
        from verl.utils.model import extract_multi_modal_inputs

        data = self.run_.to_dataproto(processor=self.processor, pad_token_id=509)
        self.assertEqual(len(data), ROWS * SAMPLES)
        batch = data.batch
        width = batch["responses"].shape[1]
        mask = batch["response_mask"].bool().numpy()
        rollout = batch["rollout_log_probs"].numpy()
        for dtype in (torch.float32, torch.bfloat16):
            model = Qwen2VLForConditionalGeneration.from_pretrained(MODEL, dtype=dtype).eval()
            with torch.no_grad():
                # As verl's engines call a model: rows' pictures behind one another.
                logits = model(
                    input_ids=batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    position_ids=batch["position_ids"].transpose(0, 1),
                    **{
                        key: value
                        for key, value in extract_multi_modal_inputs(
                            data.non_tensor_batch["multi_modal_inputs"]
                        ).items()
                        if key in ("pixel_values", "image_grid_thw")
                    },
                ).logits.float()
            # Placeholders are never sampled: rollouts leave them out of the distribution.
            logits[..., 514:516] = -torch.inf
            logprobs = logits[:, -width - 1 : -1].log_softmax(-1)
            again = logprobs.gather(-1, batch["responses"].unsqueeze(-1))[..., 0].numpy()
            apart = np.abs(again - rollout)[mask]
            print(f"{dtype}: {mask.sum()} tokens, apart by {apart.mean():.5f}, at most {apart.max():.4f}")
            self.assertLess(apart.mean(), 0.003)  # what rounding to bf16 makes
            self.assertLess(apart.max(), 0.15)

        # Another picture, or another place, is no noise.
        pixels = data.non_tensor_batch["multi_modal_inputs"][0]["pixel_values"]
        self.assertGreater(float(pixels.std()), 0.1)
        with torch.no_grad():
            inputs = extract_multi_modal_inputs(data.non_tensor_batch["multi_modal_inputs"])
            wrong = model(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                position_ids=batch["position_ids"].transpose(0, 1),
                pixel_values=-inputs["pixel_values"],
                image_grid_thw=inputs["image_grid_thw"],
            ).logits.float()
        wrong[..., 514:516] = -torch.inf
        other = wrong[:, -width - 1 : -1].log_softmax(-1).gather(-1, batch["responses"].unsqueeze(-1))
        self.assertGreater(np.abs(other[..., 0].numpy() - rollout)[mask].mean(), 0.1)


if __name__ == "__main__":
    unittest.main()
