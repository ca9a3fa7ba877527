"""Decoding by PyTorch and transformers on the same GPU, to set beside bench_engine's:

    compare_transformers.py MODEL_DIR [--batches 1,32,256] [--context 64] [--seconds 400]

MODEL_DIR needs a config.json alone (tests/bench/shapes); weights are random bf16, made on the device.
A static cache, sampling at temperature 1 on the device, and each step one replay of a CUDA graph: of
the model as it is, and of the model as torch.compile makes it. Each of the two runs in a process of
its own, for which `seconds` are shared out, so that the program ends whatever becomes of them. Keys and
values of the context are random too: what a step takes does not depend on them.
"""

import argparse
import inspect
import os
import signal
import subprocess
import sys
import time

WAYS = {"graph": "graph", "compiled": "compiled, graph"}
STEPS = 64  # timed; the cache has room for them after the context
WARM_UP = 3


def static_cache(config, batch: int, positions: int):
    """Versions differ in what the constructor takes."""
    import torch
    from transformers import StaticCache

    known = inspect.signature(StaticCache.__init__).parameters
    given = dict(config=config, max_batch_size=batch, max_cache_len=positions, device="cuda", dtype=torch.bfloat16)
    return StaticCache(**{name: value for name, value in given.items() if name in known})


def set_length(cache, length: int) -> None:
    """Of caches that count their positions themselves; others are told in each call."""
    import torch

    for layer in getattr(cache, "layers", []):
        counted = getattr(layer, "cumulative_length", None)
        if isinstance(counted, torch.Tensor):
            counted.fill_(length)
        elif counted is not None:
            layer.cumulative_length = length


def fill(cache) -> None:
    layers = getattr(cache, "layers", None)
    if layers is not None:
        tensors = [tensor for layer in layers for tensor in (layer.keys, layer.values)]
    else:
        tensors = [*cache.key_cache, *cache.value_cache]
    for tensor in tensors:
        tensor.normal_()


def random_model(folder: str):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(before)
    model.eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.bfloat16 and parameter.is_cuda, name
        if parameter.dim() > 1:
            parameter.normal_(std=0.02)
    return model


def measure(model, forward, batch: int, context: int) -> float:
    """Seconds of a step."""
    import torch

    positions = context + STEPS
    cache = static_cache(model.config, batch, positions)
    tokens = torch.randint(model.config.vocab_size, (batch, 1), device="cuda")
    position = torch.full((1,), context, device="cuda")
    columns = torch.arange(positions, device="cuda")
    takes_position = "cache_position" in inspect.signature(model.forward).parameters

    def step(forward) -> None:
        more = dict(cache_position=position) if takes_position else {}
        mask = (columns <= position).expand(batch, 1, 1, positions)
        logits = forward(input_ids=tokens, attention_mask=mask, position_ids=position.expand(batch, 1),
                         past_key_values=cache, use_cache=True, **more).logits[:, -1]
        # Gumbel noise: the largest of p / e, e exponential, is a sample of p.
        weights = torch.softmax(logits.float(), dim=-1)
        tokens.copy_((weights / torch.empty_like(weights).exponential_()).argmax(dim=-1, keepdim=True))
        position.add_(1)

    def restart() -> None:
        set_length(cache, context)
        position.fill_(context)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(model.forward)  # makes the cache's tensors, which compiled code should find there
        fill(cache)
        restart()
        for _ in range(WARM_UP):
            step(forward)
    torch.cuda.current_stream().wait_stream(side)
    restart()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(forward)
    best = float("inf")
    for _ in range(3):
        restart()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(STEPS):
            graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e-3 / STEPS)
    if int(position) != context + STEPS:
        raise RuntimeError("the graph did not do what the step does")
    return best


def measure_all(arguments: argparse.Namespace) -> None:
    import torch

    torch.manual_seed(1)
    with torch.no_grad():
        model = random_model(arguments.folder)
        for batch in arguments.batches:
            forward = model.forward
            if arguments.way == "compiled":
                torch._dynamo.reset()
                forward = torch.compile(model.forward, dynamic=False)
            seconds = measure(model, forward, batch, arguments.context)
            print(f"{WAYS[arguments.way]:16} {batch:5} {seconds * 1e3:9.2f} {batch / seconds:9.1f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="decoding by PyTorch and transformers")
    parser.add_argument("folder")
    parser.add_argument("--batches", type=lambda text: [int(b) for b in text.split(",")], default=[1, 32, 256])
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--way", choices=WAYS, help="measure this one, in this process")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if arguments.way:
        measure_all(arguments)
        return 0

    import torch
    import transformers

    if not torch.cuda.is_available():
        print("PyTorch finds no CUDA device", file=sys.stderr)
        return 1
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {torch.cuda.get_device_name()}; "
          f"{os.path.basename(os.path.normpath(arguments.folder))}, context {arguments.context}")
    print(f"{'way':16} {'batch':>5} {'ms/step':>9} {'tokens/s':>9}", flush=True)
    end = time.monotonic() + arguments.seconds
    best: dict[int, float] = {}
    for way in WAYS:
        child = subprocess.Popen([sys.executable, *sys.argv, "--way", way], stdout=subprocess.PIPE, text=True,
                                 start_new_session=True)
        try:
            said, _ = child.communicate(timeout=max(1.0, end - time.monotonic()))
            why = f"ended with {child.returncode}" if child.returncode else ""
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # with the processes that compile
            said, _ = child.communicate()
            why = "was stopped: out of time"
        print(said, end="")
        for line in said.splitlines():
            if line.startswith(WAYS[way]):
                *_, batch, _, rate = line.split()
                best[int(batch)] = max(best.get(int(batch), 0.0), float(rate))
        if why:
            print(f"{WAYS[way]}: {why}", flush=True)
    for batch, rate in sorted(best.items()):
        print(f"best at batch {batch}: {rate:.1f} tokens/s")
    return 0 if set(best) == set(arguments.batches) else 1


if __name__ == "__main__":
    sys.exit(main())
