"""Checks of the generators, the prompt files and the exported models: python -m unittest discover tests/models

Needs the packages of requirements.txt; the comparison with transformers is skipped where it is missing.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from calculator_tasks import NO_SUCH_TOOL, make_calculator_problem, turns
from eagle3 import Eagle3Config, Eagle3Head, draft_chain, features_of, grow_tree, load_head, unroll
from evaluate import load_directory
from evaluate_eagle3 import noise_given
from latent import load_latent
from model import Cache, Qwen2, Shape, pack
from radar import CALLS, Outcome, Reward, StopPolicy, calls_of, costs_of, fixed, outcome, stop_probabilities, train
from radar_data import Rows, check as check_lengths, length_distributions, points_of, tail_probability, target_probabilities
from tasks import TASKS, check, make_problem, prompt_text, solve
from train import Batch, conversation
from train_eagle3 import Document

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MODELS = [CONFIGS / "models" / name for name in ("target", "draft", "experts", "calculator")]


LATENT = CONFIGS / "models" / "latent"


def prompt_rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (CONFIGS / "prompts" / f"{name}.jsonl").read_text().splitlines()]


class Tasks(unittest.TestCase):
    def test_solutions_end_in_the_true_answer(self) -> None:
        rng = random.Random(5)
        for task in TASKS:
            for _ in range(200):
                problem = make_problem(rng, "train", task)
                self.assertTrue(check(solve(problem, rng), problem.answer), problem)

    def test_unseen_questions_are_not_in_the_training_file(self) -> None:
        train = {row["prompt"][0]["content"] for row in prompt_rows("train")}
        for name in ("unseen", "quickstart"):
            self.assertFalse(train & {row["prompt"][0]["content"] for row in prompt_rows(name)})

    def test_prompt_uids_are_unique(self) -> None:
        for name in ("train", "unseen", "quickstart"):
            rows = prompt_rows(name)
            self.assertEqual(len({row["uid"] for row in rows}), len(rows))


class Calculator(unittest.TestCase):
    def test_conversations_are_what_the_tools_answer(self) -> None:
        sys.path[:0] = [str(CONFIGS), str(CONFIGS.parent / "io" / "python")]
        import calculator
        from tool_worker import Conversations

        habits = set()
        for seed in range(300):
            rng = random.Random(seed)
            problem = make_calculator_problem(rng, "train")
            worker = Conversations(calculator)
            said = turns(problem, rng)
            for number, (text, told) in enumerate(said):
                answer = worker({"id": "0:0", "turn": number, "text": text, "last": False, "data_source": "",
                                 "ground_truth": problem.answer, "extra_info": None})
                if told is None:
                    self.assertEqual(answer, {"id": "0:0", "done": True, "reward": 1.0})
                else:
                    self.assertEqual(answer["observation"], told)
            habits.add((len(said) > len(problem.verbs), any(told == NO_SUCH_TOOL for _, told in said)))
        self.assertEqual(len(habits), 4, "all habits")

    def test_what_the_model_says_is_what_it_is_trained_on(self) -> None:
        tokenizer = Tokenizer.from_file(str(CONFIGS / "models" / "calculator" / "tokenizer.json"))
        batch = Batch(tokenizer, 5, 0, 4096, 4000, conversation)
        said = batch.targets >= 0
        next_one = batch.targets[:-1] == batch.tokens[1:]
        at_ends = batch.targets[:-1] == tokenizer.token_to_id("<|im_end|>")  # that of a document is no input
        self.assertTrue(bool((next_one | at_ends | ~said[:-1]).all()))
        text = tokenizer.decode(batch.targets[said].tolist(), skip_special_tokens=False)
        self.assertNotIn("<|im_start|>", text)
        self.assertNotIn("Error", text)


class Models(unittest.TestCase):
    def test_tokenizer_round_trip_and_single_digits(self) -> None:
        tokenizer = Tokenizer.from_file(str(MODELS[0] / "tokenizer.json"))
        text = "naïve é 漢字  12+345\n\n it's"
        self.assertEqual(tokenizer.decode(tokenizer.encode(text).ids), text)
        self.assertEqual(len(tokenizer.encode("123456").ids), 6)
        self.assertEqual(len({model.joinpath("tokenizer.json").read_bytes() for model in MODELS}), 1)

    def test_parameters_and_size(self) -> None:
        counts = [sum(p.numel() for p in load_directory(d).parameters()) for d in MODELS]
        self.assertTrue(4_000_000 <= counts[0] <= 8_000_000 and counts[1] <= 600_000 and counts[2] <= 3_000_000, counts)
        self.assertLess(sum(f.stat().st_size for d in MODELS for f in d.iterdir()), 20_000_000)

    def test_logits_equal_those_of_transformers(self) -> None:
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError:
            self.skipTest("transformers is not installed")
        question = "What is 58 + 67?"
        for directory in MODELS:
            tokenizer = AutoTokenizer.from_pretrained(directory)
            text = tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
            )
            self.assertEqual(text, prompt_text(question))
            tokens = torch.tensor(tokenizer(text).input_ids)
            own = load_directory(directory)
            with torch.no_grad():
                theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)(tokens[None]).logits[0]
                flat = own(tokens, pack([len(tokens)], len(tokens)))
                cache = Cache(own.shape, 1, len(tokens))
                steps = [own.step(tokens[i: i + 1], torch.tensor([i]), cache)[0] for i in range(len(tokens))]
            torch.testing.assert_close(flat, theirs, atol=1e-3, rtol=1e-4)
            torch.testing.assert_close(torch.stack(steps), theirs, atol=1e-3, rtol=1e-4)

    def test_latent_attention_is_that_of_transformers_and_its_layer_foretells_the_model(self) -> None:
        try:
            from transformers import AutoModelForCausalLM
        except ImportError:
            self.skipTest("transformers is not installed")
        tokenizer = Tokenizer.from_file(str(LATENT / "tokenizer.json"))
        self.assertEqual((LATENT / "tokenizer.json").read_bytes(), (MODELS[0] / "tokenizer.json").read_bytes())
        self.assertLess((LATENT / "model.safetensors").stat().st_size, 3_000_000)
        rng = random.Random(7)
        model, agreed, counted = load_latent(LATENT), 0, 0
        theirs = AutoModelForCausalLM.from_pretrained(LATENT, dtype=torch.float32)
        for _ in range(4):
            problem = make_problem(rng, "train", "add")
            prompt = tokenizer.encode(prompt_text(problem.question)).ids
            tokens = torch.tensor(prompt + tokenizer.encode(solve(problem, rng)).ids)
            packing = pack([len(tokens) - 1], len(tokens) - 1)
            with torch.no_grad():
                states = model.states(tokens[:-1], packing)
                logits = model.lm_head(states)
                torch.testing.assert_close(logits, theirs(tokens[None, :-1]).logits[0], atol=1e-3, rtol=1e-4)
                ahead = model.lm_head(model.following(tokens[1:], states, packing))
            same = (ahead[:-1].argmax(-1) == logits[1:].argmax(-1))[len(prompt):]
            agreed, counted = agreed + int(same.sum()), counted + len(same)
        self.assertGreater(agreed / counted, 0.6)


SMALL = Eagle3Config(hidden_size=32, target_hidden_size=24, intermediate_size=48, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=8, vocab_size=40, draft_vocab_size=40)


def random_head(config: Eagle3Config, seed: int = 3) -> Eagle3Head:
    generator = torch.Generator().manual_seed(seed)
    head = Eagle3Head(config, torch.randn(config.vocab_size, config.hidden_size, generator=generator))
    for parameter in head.parameters():
        spread = 0.2 if parameter.dim() == 1 else 2 * parameter.shape[-1] ** -0.5
        parameter.data = spread * torch.randn(parameter.shape, generator=generator) + (parameter.dim() == 1)
    return head.eval()


def random_text(length: int, config: Eagle3Config = SMALL) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    tokens = torch.randint(config.vocab_size, (length,), generator=generator)
    return tokens, torch.randn(length, 3 * config.target_hidden_size, generator=generator)


class Eagle3(unittest.TestCase):
    def test_streams_and_logits_of_rows_are_those_of_a_flat_pass(self) -> None:
        target = load_directory(MODELS[0])
        tokens = torch.arange(40) % 200
        with torch.no_grad():
            whole, streams, _ = target.rows(tokens[None], torch.arange(40)[None])
            head, _, past = target.rows(tokens[None, :25], torch.arange(25)[None])
            mask = torch.ones(15, 40, dtype=torch.bool).tril(25)[None]
            tail, _, _ = target.rows(tokens[None, 25:], torch.arange(25, 40)[None], mask, past)
            torch.testing.assert_close(whole[0], target(tokens, pack([40], 40)), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(torch.cat((head, tail), 1), whole, atol=1e-4, rtol=1e-4)
        self.assertEqual(len(streams), 6)
        torch.testing.assert_close(streams[0][0], target.model.embed_tokens(tokens))
        torch.testing.assert_close(features_of(streams), torch.cat((streams[2], streams[3], streams[3]), -1))

    def test_unrolling_a_text_is_drafting_it_after_every_prefix(self) -> None:
        for config in (SMALL, replace(SMALL, norm_before_residual=True, rope_theta=50.0)):
            head = random_head(config)
            tokens, features = random_text(12)
            with torch.no_grad():
                steps = list(unroll(head, tokens, features, 4))
                for t in range(11):
                    rows = head(tokens[1 : t + 2], features[: t + 1])
                    for step in range(min(4, 11 - t)):
                        torch.testing.assert_close(steps[step][t], rows.logits[-1], atol=1e-5, rtol=1e-4)
                        if t + 2 + step < 12:
                            rows = head(tokens[None, t + 2 + step], rows.features[-1:], past=(rows.keys, rows.values))

    def test_unrolling_masked_rows_is_drafting_at_once_after_every_prefix(self) -> None:
        head = random_head(replace(SMALL, num_hidden_layers=2, mask_token_id=7))
        torch.nn.init.normal_(head.mask_hidden)
        tokens, features = random_text(12)
        with torch.no_grad():
            steps = list(unroll(head, tokens, features, 4))
            for t in range(11):
                drafted = head.at_once(tokens[1 : t + 2], features[: t + 1], 3)[-4:]
                torch.testing.assert_close(torch.stack([step[t] for step in steps]), drafted, atol=1e-5, rtol=1e-4)

    def test_the_residual_is_the_feature_before_or_after_its_norm(self) -> None:
        tokens, features = random_text(6)
        for normed in (False, True):
            head = random_head(replace(SMALL, norm_before_residual=normed))
            # With nothing added to it, what leaves the layer is the residual.
            head.midlayer.self_attn.o_proj.weight.data.zero_()
            head.midlayer.mlp.down_proj.weight.data.zero_()
            with torch.no_grad():
                stream = head.fc(features[:-1])
                expected = head.midlayer.hidden_norm(stream) if normed else stream
                torch.testing.assert_close(head(tokens[1:], features[:-1]).features, expected)

    def test_a_chain_without_noise_follows_the_likeliest_tokens(self) -> None:
        head = random_head(SMALL)
        tokens, features = random_text(9)
        with torch.no_grad():
            chain = draft_chain(head, tokens[1:], features[:-1], torch.zeros(4, 40), 0.0)
            text = torch.cat((tokens, chain))
            steps = list(unroll(head, text, torch.cat((features, torch.zeros(4, 72))), 4))
        self.assertEqual([int(steps[i][7].argmax()) for i in range(4)], chain.tolist())

    def test_rows_of_a_tree_are_those_of_a_chain_and_parents_come_with_their_children(self) -> None:
        head = random_head(SMALL)
        tokens, features = random_text(9)
        width, depth = 3, 4
        with torch.no_grad():
            rows = head(tokens[None, 1:], features[None, :-1])
            root = Rows(rows.logits[:, -1], rows.features[:, -1], rows.keys, rows.values)
            tree = grow_tree(head, root, torch.ones(1, 8, dtype=torch.bool), torch.tensor([7]), depth, width)
            self.assertEqual(tree.tokens.shape, (1, width + depth * width**2))
            for candidate in range(tree.tokens.shape[1]):
                path, at = [candidate], int(tree.parents[0, candidate])
                while at:
                    path.insert(0, int(tree.row_candidates[0, at]))
                    at = int(tree.parents[0, path[0]])
                self.assertEqual(len(path), int(tree.depths[candidate]))
                chain, score = rows, 0.0
                for step in path:
                    token = tree.tokens[0, step]
                    score += float(torch.log_softmax(chain.logits[0, -1], -1)[token])
                    chain = head(token[None, None], chain.features[:, -1:], past=(chain.keys, chain.values))
                self.assertAlmostEqual(score, float(tree.scores[0, candidate]), places=3)
        for calls in range(2, depth + 2):
            chosen = tree.best(calls, 10)[0].tolist()
            self.assertEqual(len(chosen), 9)
            parents = {int(tree.row_candidates[0, tree.parents[0, candidate]]) for candidate in chosen} - {-1}
            self.assertLessEqual(parents, set(chosen))
            self.assertLessEqual(max(tree.depths[chosen].tolist()), calls)

    def test_reduced_vocabularies_and_both_naming_schemes_load(self) -> None:
        config = replace(SMALL, draft_vocab_size=10)
        head = random_head(config)
        ids = torch.arange(10) * 4 + 1
        head.d2t = ids - torch.arange(10)
        head.t2d = torch.zeros(40, dtype=torch.bool).index_fill(0, ids, True)
        self.assertEqual(head.target_ids(torch.tensor([0, 9])).tolist(), [1, 37])
        tokens, features = random_text(6)
        for layer in ("midlayer.", "layers.0."):
            with tempfile.TemporaryDirectory() as folder:
                save_file({name.replace("midlayer.", layer): tensor.contiguous() for name, tensor in head.state_dict().items()},
                          Path(folder) / "model.safetensors")
                (Path(folder) / "config.json").write_text(json.dumps(config.as_dict()))
                read = load_head(Path(folder), head.embedding)
            with torch.no_grad():
                torch.testing.assert_close(read(tokens[1:], features[:-1]).logits, head(tokens[1:], features[:-1]).logits)
            self.assertTrue(torch.equal(read.d2t, head.d2t) and torch.equal(read.t2d, head.t2d))

    def test_noise_that_chose_the_given_tokens_is_gumbel(self) -> None:
        generator = torch.Generator().manual_seed(2)
        logits = torch.randn(1, 8, generator=generator).repeat(200000, 1)
        chosen = torch.multinomial(torch.softmax(logits, -1), 1, generator=generator)[:, 0]
        noise = noise_given(logits, chosen, generator)
        self.assertTrue(torch.equal((logits + noise).argmax(-1), chosen))
        # Over tokens that the target draws it is plain Gumbel noise again: mean 0.577, deviation 1.283.
        self.assertLess(float((noise.mean(0) - 0.5772).abs().max()), 0.03)
        self.assertLess(float((noise.std(0) - 1.2825).abs().max()), 0.03)

    def test_the_shipped_head_drafts_what_the_target_says(self) -> None:
        target = load_directory(MODELS[0])
        head = load_head(CONFIGS / "models" / "eagle3", target.model.embed_tokens.weight)
        tokenizer = Tokenizer.from_file(str(MODELS[0] / "tokenizer.json"))
        rng = random.Random(6)
        problem = make_problem(rng, "unseen", "add")
        text = prompt_text(problem.question) + solve(problem, rng)
        tokens = torch.tensor(tokenizer.encode(text).ids)
        first = len(tokenizer.encode(prompt_text(problem.question)).ids)
        with torch.no_grad():
            logits, streams, _ = target.rows(tokens[None], torch.arange(len(tokens))[None])
            drafted = next(unroll(head, tokens, features_of(streams)[0], 1)).argmax(-1)[first - 1 : -1]
        said = logits[0].argmax(-1)[first:]
        self.assertGreater(float((drafted == said).float().mean()), 0.8)


def lengths_by_equations(tree, probabilities, chosen: list[int]) -> list[float]:
    """Equations 8 to 10 as they read, node by node, with our P_acc and P_rej."""
    children: dict[int, list[int]] = {}
    for candidate in chosen:
        children.setdefault(int(tree.parents[0, candidate]), []).append(candidate)
    row_of = {int(candidate): row for row, candidate in enumerate(tree.row_candidates[0])}
    lengths = [0.0] * (CALLS + 1)

    def visit(row: int | None, accepted: float, depth: int) -> None:
        below = [] if row is None else children.get(row, [])
        chance = [float(probabilities[0, row, tree.tokens[0, child]]) for child in below]
        lengths[depth] += accepted * (1 - sum(chance))
        for child, p in zip(below, chance):
            visit(row_of.get(child), accepted * p, depth + 1)

    visit(0, 1.0, 0)
    return lengths


class Radar(unittest.TestCase):
    def test_distributions_of_lengths_are_those_of_the_equations(self) -> None:
        head = random_head(SMALL)
        tokens, features = random_text(9)
        with torch.no_grad():
            rows = head(tokens[None, 1:], features[None, :-1])
            root = Rows(rows.logits[:, -1], rows.features[:, -1], rows.keys, rows.values)
            tree = grow_tree(head, root, torch.ones(1, 8, dtype=torch.bool), torch.tensor([7]))
        generator = torch.Generator().manual_seed(4)
        probabilities = torch.softmax(3 * torch.randn(1, 71, 40, generator=generator), -1)
        flat = root.logits.topk(15).indices
        lengths = length_distributions(tree, probabilities, flat, 16)
        torch.testing.assert_close(lengths.sum(-1), torch.ones(1, CALLS))
        self.assertAlmostEqual(float(lengths[0, 0, 1]), float(probabilities[0, 0, flat[0]].sum()), places=5)
        for calls in range(2, CALLS + 1):
            expected = lengths_by_equations(tree, probabilities, tree.best(calls, 16)[0].tolist())
            torch.testing.assert_close(lengths[0, calls - 1], torch.tensor(expected), atol=1e-6, rtol=1e-4)

    def test_sampling_accepts_lengths_as_recorded(self) -> None:
        # A target of random weights is unsure of everything, so that lengths vary.
        torch.manual_seed(7)
        target = Qwen2(Shape(vocabulary=40, hidden=32, layers=6, heads=4, kv_heads=2, intermediate=48, head_dim=8))
        head = random_head(replace(SMALL, target_hidden_size=32))
        target.model.embed_tokens.weight.data *= 5
        text = Document(torch.randint(40, (30,)).tolist(), 4)
        points = list(points_of(target, head, [text], 4, 4, 16, 1.0, seed=1))
        results = check_lengths(target, head, points, 2000, 16, 1.0, seed=2)
        for statistic, freedom in results:
            self.assertGreater(freedom, 0)
            self.assertGreater(tail_probability(statistic, freedom), 1e-4)

    def test_the_target_sees_a_row_of_a_tree_as_the_end_of_its_path(self) -> None:
        torch.manual_seed(8)
        target = Qwen2(Shape(vocabulary=40, hidden=32, layers=6, heads=4, kv_heads=2, intermediate=48, head_dim=8))
        # Attention that tells positions apart, which that of a new model hardly does.
        for name, parameter in target.named_parameters():
            parameter.data *= 20 if "_proj" in name else 5
        head = random_head(replace(SMALL, target_hidden_size=32))
        document = Document(torch.randint(40, (20,)).tolist(), 4)
        with torch.no_grad():
            points = next(points_of(target, head, [document], 3, 3, 16, 1.0, seed=1))
            tree = points.tree
            got = target_probabilities(target, points.text, points.ends, tree, 1.0)
            for prefix, row in ((0, 0), (0, 70), (1, 35), (2, 8), (2, 61)):
                path, at = [], row
                while at:
                    path.insert(0, int(tree.row_tokens[prefix, at]))
                    at = int(tree.parents[prefix, tree.row_candidates[prefix, at]])
                whole = torch.tensor(document.tokens[: int(points.ends[prefix]) + 1] + path)[None]
                logits, _, _ = target.rows(whole, torch.arange(whole.shape[1])[None])
                torch.testing.assert_close(got[prefix, row], torch.softmax(logits[0, -1], -1), atol=1e-4, rtol=1e-3)

    def test_returns_are_the_discounted_rewards(self) -> None:
        reward = Reward(pass_cost=0.1, decision_cost=0.01, alpha=0.02, beta=0.5, gamma=0.9)
        for calls in range(1, CALLS + 1):
            time_taken = 1 + 0.1 * (calls - 1) + 0.01 * min(calls, 7)
            rewards = [-0.02] * (calls - 1) + [0.5 * 3 / time_taken]
            got = reward.returns(torch.tensor([calls]), torch.tensor([3.0]))[0]
            for decision in range(CALLS - 1):
                expected = sum(0.9 ** i * r for i, r in enumerate(rewards[decision:]))
                self.assertAlmostEqual(float(got[decision]), expected, places=5)

    def test_times_are_those_of_a_cost_table(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "costs.yaml"
            table.write_text("""
decode: {points: [[1, 1.0e-3], [101, 3.0e-3]], attention: [[1000, 1.0e-3]]}
drafted_position: 1.0e-8
drafters:
  - {name: ngram}
  - name: eagle3:somewhere
    first: {points: [[1, 2.0e-4]], attention: [[1000, 1.0e-4]]}
    round: {points: [[1, 1.0e-4], [21, 2.0e-4]], attention: [[5000, 1.0e-4]]}
""")
            cycle, one_pass = costs_of(table, total=51, context=500)
        # Verifying: 2 ms, 0.5 of attending, 50 drafted rows of 500 positions; the first call.
        self.assertAlmostEqual(cycle, 2e-3 + 0.5e-3 + 50 * 500 * 1e-8 + 2e-4 + 0.5e-4)
        self.assertAlmostEqual(one_pass, 1e-4 + 0.1e-4)

    def test_calls_and_stop_probabilities_follow_from_decisions(self) -> None:
        actions = torch.tensor([[0, 1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
        self.assertEqual(calls_of(actions).tolist(), [1, 3, 8])
        log_policy = torch.log(torch.tensor([0.25, 0.75])).expand(1, CALLS - 1, 2)
        stops = stop_probabilities(log_policy)[0]
        for calls in range(1, CALLS):
            self.assertAlmostEqual(float(stops[calls - 1]), 0.75 ** (calls - 1) * 0.25, places=5)
        self.assertAlmostEqual(float(stops.sum()), 1.0, places=5)

    def test_training_learns_when_to_stop(self) -> None:
        """Of two kinds of states, in one of which nothing past the first call is ever accepted."""
        torch.manual_seed(1)
        kinds = torch.arange(512) % 2
        states = -4.0 * (1 - kinds)[:, None, None] - torch.rand(512, CALLS - 1, 10)
        lengths = torch.zeros(512, CALLS, CALLS + 1)
        for calls in range(1, CALLS + 1):
            lengths[kinds == 1, calls - 1, calls] = 1.0
            lengths[kinds == 0, calls - 1, 1] = 1.0
        reward = Reward(pass_cost=0.2, decision_cost=0.005, alpha=0.02, beta=0.44, gamma=0.99)
        policy = StopPolicy()
        with contextlib.redirect_stdout(io.StringIO()):
            train(policy, states, lengths, reward, 30, 64, 3e-3, torch.Generator().manual_seed(1))
        with torch.no_grad():
            stops = stop_probabilities(policy.eval()(states))
        learned: Outcome = outcome(stops, lengths, reward)
        best = max(outcome(fixed(calls, 512), lengths, reward).speed for calls in range(1, CALLS + 1))
        self.assertGreater(learned.speed, best)
        expected = (stops * torch.arange(1, CALLS + 1)).sum(1)
        self.assertLess(float(expected[kinds == 0].mean()), 2.0)
        self.assertGreater(float(expected[kinds == 1].mean()), 7.0)


if __name__ == "__main__":
    unittest.main()
