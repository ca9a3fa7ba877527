"""turns_worker.py FOLDER SEED [MODE...]: an environment whose answers hang on the conversation alone.

It answers by the prompt's uid, the sample, the number of the turn and all turns before, and ends a conversation after
one to six turns. What it was asked for the first time goes to FOLDER/asked, a line each, and to FOLDER/answered with
its answer. Modes:
  slow     it answers after a random moment, by SEED and the number of the process
  slower   the same, of moments as long as turns
  dies, hangs, garbles   once for some turns
  refuses  the conversations of one sample are errors from their second turn on
  recorded=FILE  answers are those of FILE, which a run writes to FILE.new where there is none yet; of a conversation that
           differs in a token from those of that run there is none, and it fails
"""
import hashlib
import json
import os
import random
import sys
import time

folder, seed, modes = sys.argv[1], sys.argv[2], set(sys.argv[3:])
chance = random.Random(f"{seed} {os.getpid()}")
record = next((mode.partition("=")[2] for mode in modes if mode.startswith("recorded=")), None)
answers = None  # by the hash of all turns up to the one that is answered
if record and os.path.exists(record):
    with open(record) as recorded:
        answers = {key: said for key, said in map(json.loads, recorded)}
history = {}  # hash of each conversation's turns so far


def digest(*parts):
    return hashlib.sha1(json.dumps(parts).encode()).hexdigest()


def once(what, line):
    """Whether this is the first time for one of every few turns."""
    if what not in modes or line.get("replay") or int(digest(what, line["id"], line["turn"]), 16) % 9 > 0:
        return False
    mark = os.path.join(folder, f"{what}-{line['id']}-{line['turn']}")
    if os.path.exists(mark):
        return False
    open(mark, "w").close()
    return True


def answer(line):
    name, turn = line["id"], line["turn"]
    before = history.pop(name, "") if turn else ""
    if turn and not before:
        return {"error": f"turn {turn} of a conversation that was never begun"}
    now = history[name] = digest(before, line["uid"], turn, line["tokens"], line["finish_reason"])
    if line.get("replay"):
        return {}
    with open(os.path.join(folder, "asked"), "a") as asked:
        asked.write(f"{name} {turn}\n")
    if "refuses" in modes and name.endswith(":1") and turn > 0:
        return {"error": "not this one"}
    if answers is not None:
        said = answers.get(now, {"error": f"turn {turn} of a conversation that was never recorded"})
        if said.get("done"):
            del history[name]
        return said
    end = 1 + int(digest(line["uid"], name), 16) % 6
    last = turn + 1 == end
    if last:
        del history[name]
    forms = (
        f"{now[:6]} is {turn}",
        [{"role": "user", "content": "again"}, {"role": "user", "content": now[:3]}],
        [5 + byte % 200 for byte in bytes.fromhex(now[:12])],
    )
    said = {"done": True} if last else {"observation": forms[int(now, 16) % 3]}
    said = {**said, "reward": (turn + 1) / 4, "extra": {"turns": turn + 1}}
    if record:
        with open(f"{record}.new", "a") as recorded:
            recorded.write(json.dumps([now, said]) + "\n")
    return said


for text in sys.stdin:
    line = json.loads(text)
    if line.get("close"):
        history.pop(line["id"], None)
        print(json.dumps({"id": line["id"]}), flush=True)
        continue
    if once("dies", line):
        sys.exit(3)
    if once("hangs", line):
        time.sleep(100)
    if once("garbles", line):
        print("nonsense" if line["last"] else '{"id": "another"}', flush=True)
    else:
        said = answer(line)
        for mode, longest in (("slow", 0.02), ("slower", 0.2)):
            if mode in modes:
                time.sleep(chance.random() * longest)
        if not line.get("replay"):
            with open(os.path.join(folder, "answered"), "a") as answered:
                answered.write(f"{line['id']} {line['turn']}\n")
        print(json.dumps({"id": line["id"], **said}), flush=True)
