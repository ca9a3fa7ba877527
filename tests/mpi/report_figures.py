"""report_figures.py TELEMETRY REPORT TRACE [HOST]: compares what `paceline report` printed with figures computed from telemetry.h5.

Written from the layout of the file alone (io/telemetry/telemetry.hpp), so that neither repeats the other's faults. HOST: of
all ranks, in a run; a simulation has several.
"""

import json
import re
import sys
import time
from collections import Counter

import h5py
import numpy as np

VERIFIER = 0


class Compared:
    def __init__(self) -> None:
        self.count = 0
        self.wrong = 0

    def same(self, what: str, said: float, found: float, within: float) -> None:
        self.count += 1
        if abs(said - found) > within:
            self.wrong += 1
            print(f"{what}: the report says {said}, the file {found}")


def table(text: str, title: str) -> list[list[str]]:
    """The rows of a table, without its head; cells are apart by two spaces or more."""
    lines = text.split("\n")
    begin = next(i for i, line in enumerate(lines) if line.startswith(title))
    rows = []
    for line in lines[begin + 2 :]:
        if not line.strip():
            break
        rows.append(re.split(r"\s{2,}", line.strip()))
    return rows


def attempts_of(file: h5py.File) -> dict[int, tuple[float, float]]:
    """By number, where an attempt begins when they stand one after the other, and how long it is."""
    length = {int(a): 0.0 for a in file["attempts/attempt"]}

    def reach(attempts: np.ndarray, times: np.ndarray) -> None:
        for attempt in length:
            length[attempt] = max([length[attempt], *times[attempts == attempt]])

    for rank in file["ranks"].values():
        steps = rank["steps"]
        reach(steps["attempt"][:], steps["start"][:] + steps["duration"][:])
    reach(file["requests/attempt"][:], file["requests/time"][:])
    reach(file["roles/attempt"][:], file["roles/start"][:] + file["roles/preparing"][:])
    reach(file["writes/attempt"][:], file["writes/start"][:] + file["writes/duration"][:])
    begin, spans = 0.0, {}
    for attempt in sorted(length):
        spans[attempt] = (begin, length[attempt])
        begin += length[attempt]
    return spans


def planned_by_leader(file: h5py.File, rank: int, steps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of a rank's steps. A group's leader alone records them: the step of its that a member's middle lies in."""
    planned = {name: steps[name].copy() for name in ("prefill_tokens", "decode_tokens", "drafted")}
    roles = {name: column[:] for name, column in file["roles"].items()}
    known = {leader: {name: column[:] for name, column in file[f"ranks/{leader}/steps"].items()}
             for leader in set(roles["leader"][roles["rank"] == rank]) - {-1, rank}}
    for i in np.flatnonzero(steps["role"] != VERIFIER):
        attempt, middle = steps["attempt"][i], steps["start"][i] + steps["duration"][i] / 2
        had = (roles["rank"] == rank) & (roles["attempt"] == attempt) & (roles["start"] <= steps["start"][i])
        if (leader := int(roles["leader"][had][-1])) < 0:
            continue
        s = known[leader]
        there = (s["attempt"] == attempt) & (s["role"] == VERIFIER)
        for step in np.flatnonzero(there & (s["start"] <= middle) & (middle <= s["start"] + s["duration"])):
            for name in planned:
                planned[name][i] = s[name][step]
    return planned


def overlap(begin: float, end: float, starts: np.ndarray, ends: np.ndarray) -> float:
    """Seconds of an interval that lie in others."""
    return float(np.maximum(0, np.minimum(end, ends) - np.maximum(begin, starts)).sum())


def main() -> None:
    report = open(sys.argv[2]).read()
    here_alone = sys.argv[4] if len(sys.argv) > 4 else None
    compared = Compared()
    with h5py.File(sys.argv[1]) as file:
        spans = attempts_of(file)
        seconds = sum(length for _, length in spans.values())
        tokens = int(file["summary/response_tokens"][:].sum())
        head = re.search(r"(\d+) tokens in ([\d.]+) s: ([\d.]+) tokens/s, ([\d.]+) a rank \((\d+) ranks\)", report)
        compared.same("tokens", int(head[1]), tokens, 0)
        compared.same("seconds", float(head[2]), seconds, 6e-4)
        compared.same("tokens/s", float(head[3]), tokens / seconds, 0.06)
        compared.same("ranks", int(head[5]), len(file["ranks"]), 0)

        kind = file["requests/kind"]
        finished = kind[:] == kind.attrs["finished"]
        times = np.array([spans[int(a)][0] for a in file["requests/attempt"][:]]) + file["requests/time"][:]
        last = {}  # of each response: after a kill some are generated again
        for i in np.flatnonzero(finished):
            last[int(file["requests/prompt_index"][i]), int(file["requests/sample_index"][i])] = i
        ends = np.sort(times[list(last.values())])
        lengths = np.sort(file["requests/tokens"][:][sorted(last.values())])
        head = re.search(r"(\d+) responses finished.* in (\d+) attempts?", report)
        compared.same("responses", int(head[1]), len(ends), 0)
        compared.same("attempts", int(head[2]), len(spans), 0)
        names = {int(value): name for name, value in file["requests/reason"].attrs.items()}
        reasons = Counter(names[int(file["requests/reason"][i])] for i in last.values())
        said = {name: int(count) for count, name in re.findall(r"(\d+) by (\w+)", head[0])}
        compared.same("finish reasons", said == reasons, True, 0)
        here = file["processes/attempt"][:] == file["processes/attempt"][-1]
        for name, word in ("cores", "core"), ("gpus", "GPU"):
            count = int(file[f"processes/{name}"][:][here].sum())
            said = re.search(rf"tokens/s, .* ([\d.]+) a {word} \((\d+) ", report)
            compared.same(name, int(said[2]) if said else 0, count, 0)
            rate = re.search(r"([\d.]+) tokens/s", report)
            if said: compared.same(f"tokens/s a {word}", float(said[1]), float(rate[1]) / count, 0.06)
        for share, after, _ in table(report, "Responses finished"):
            at = max(1, int(np.ceil(float(share) / 100 * len(ends)))) - 1
            compared.same(f"{share} % finished", float(after), ends[at], 6e-4)
        (row,) = table(report, "Response lengths")
        for said, share in zip(row, (0.5, 0.95, 0.99)):
            compared.same(f"length p{100 * share:.0f}", float(said), lengths[int(share * len(lengths))], 0)
        compared.same("longest", float(row[3]), lengths[-1], 0)
        compared.same("mean length", float(row[4]), lengths.mean(), 0.06)

        # Wall time: by the system's clock, and as long as what was recorded.
        simulated = file["attempts/started"][0] == 0
        if not simulated:
            started, ended = file["attempts/started"][:], file["attempts/ended"][:]
            now = time.time()
            compared.same("attempts that began before they ended, within the hour",
                          int(np.sum((now - 3600 < started) & (started < ended) & (ended <= now))), len(spans), 0)
            compared.same("attempts that began when the one before had ended", int(np.sum(started[1:] < ended[:-1])), 0, 0)
            compared.same("wall seconds", float((ended - started).sum()), seconds, 1e-3)
            when = [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t)) for t in (started[0], ended[-1])]
            compared.same("wall time", report.count(f"from {when[0]} to {when[1]} UTC on 1 node"), 1, 0)

        # Hosts, where one is named: all ranks of a test are on it.
        if here_alone:
            offsets = file["processes/host_offsets"][:]
            text = file["processes/host"][:].tobytes()
            hosts = [text[a:b].decode() for a, b in zip(offsets[:-1], offsets[1:])]
            compared.same("hosts", hosts.count(here_alone), len(hosts), 0)
            compared.same("processes", len(hosts), int(file["attempts/ranks"][:].sum()), 0)
            (node,) = table(report, "Memory, MiB a node")
            compared.same("the node", node[0] == here_alone, True, 0)
            last = {int(r): i for i, r in enumerate(file["summary/rank"][:])}
            for what, said in zip(("weight_bytes", "kv_bytes"), node[3:]):
                found = sum(file[f"summary/{what}"][i] for i in last.values()) / 2**20
                compared.same(f"the node's {what}", float(said), found, 0.06)

        names = ("start-up", "loading", "prefill", "decode", "verify", "draft", "sample", "communication", "flush",
                 "other", "idle")
        phases = {name: np.zeros(len(file["ranks"])) for name in names}
        drafted = accepted = 0
        for i, number in enumerate(sorted(file["ranks"], key=int)):
            s = {name: column[:] for name, column in file[f"ranks/{number}/steps"].items()}
            planned = planned_by_leader(file, int(number), s)
            rows = np.maximum(1, planned["prefill_tokens"].astype(float) + planned["decode_tokens"])
            forward = s["forward_duration"] - s["sum_duration"]
            verify = forward * np.minimum(planned["drafted"], planned["decode_tokens"]) / rows
            prefill = forward * planned["prefill_tokens"] / rows
            phases["prefill"][i] = prefill.sum() + s["picture_duration"].sum()
            phases["verify"][i] = verify.sum()
            phases["decode"][i] = (forward - prefill - verify).sum()
            phases["draft"][i] = s["draft_duration"].sum()
            phases["sample"][i] = (s["sample_duration"] - s["exchange_duration"]).sum()
            phases["communication"][i] = (s["sum_duration"] + s["exchange_duration"]).sum()
            mine = file["writes/rank"][:] == int(number)
            w = {name: column[:][mine] for name, column in file["writes"].items()}
            phases["flush"][i] = w["duration"].sum()
            of = {a: (w["start"][w["attempt"] == a], (w["start"] + w["duration"])[w["attempt"] == a]) for a in spans}
            written = [overlap(b, b + d, *of[int(a)]) for a, b, d in zip(s["attempt"], s["start"], s["duration"])]
            rest = s["duration"] - written
            rest -= sum(s[f"{name}_duration"] for name in ("picture", "forward", "draft", "sample"))
            phases["other"][i] = np.maximum(0, rest).sum()
            mine = file["roles/rank"][:] == int(number)
            role = {name: column[:][mine] for name, column in file["roles"].items()}
            phases["loading"][i] = role["loading"].sum()
            for a, epoch, preparing, loading in zip(*(role[n] for n in ("attempt", "epoch", "preparing", "loading"))):
                if epoch == 0:
                    phases["start-up"][i] += preparing - loading - overlap(0, preparing, *of[int(a)])
            there = sum(spans[int(a)][1] for a in set(file["roles/attempt"][:][mine]))
            busy = sum(p[i] for p in phases.values())
            compared.same(f"rank {number}: more seconds than there are", max(0, busy - there), 0, 1e-3)
            phases["idle"][i] = max(0, there - busy)
            leads = s["role"] == VERIFIER
            drafted += int(s["drafted"][leads].sum())
            accepted += int(s["accepted"][leads].sum())
        rows = table(report, "Where the time went")
        compared.same("phases", len(rows), sum(p.sum() > 0 for p in phases.values()), 0)
        for name, least, mean, most, rank, host, _ in rows:
            compared.same(f"{name}: whose is the most", phases[name][int(rank)], phases[name].max(), 6e-4)
            if here_alone: compared.same(f"{name}: on which host", host == here_alone, True, 0)
            for what, said, found in (("min", least, phases[name].min()), ("mean", mean, phases[name].mean()),
                                      ("max", most, phases[name].max())):
                compared.same(f"{name}, {what}", float(said), found, 6e-4)

        # What must have taken some time did, of the right ranks; in a simulation it takes none.
        if not simulated:
            for name in ("loading", "flush"):
                compared.same(f"ranks with {name}", int((phases[name] > 0).sum()), len(phases[name]), 0)
            leads = file["summary/tp"][:] > 1
            of_groups = {int(r) for r in file["summary/rank"][:][leads]}
            compared.same("ranks that communicate", int((phases["communication"] > 0).sum()), len(of_groups), 0)
            compared.same("ranks that sent what", int((file["summary/group_bytes"][:] > 0).sum()), int(leads.sum()), 0)
            compared.same("bytes of groups", sum(int(r["steps/group_bytes"][:].sum()) for r in file["ranks"].values()),
                          int(file["summary/group_bytes"][:].sum()), 0)
            compared.same("seconds of communication", file["summary/communication_seconds"][:].sum(),
                          phases["communication"].sum(), 1e-6)
            kinds = {n: int(v) for n, v in file["writes/kind"].attrs.items()}
            for name, count in (("final_trajectories", 1), ("final_telemetry", 1)):
                compared.same(f"writes of {name}", int((file["writes/kind"][:] == kinds[name]).sum()), count, 0)
        without = []
        file.visititems(lambda n, item: without.append(n) if isinstance(item, h5py.Dataset) and not len(item.attrs) else 0)
        compared.same(f"columns without a unit: {without}", len(without), 0, 0)

        head = re.search(r"(\d+) draft tokens verified, (\d+) accepted", report)
        compared.same("drafted", int(head[1]), drafted, 0)
        compared.same("accepted", int(head[2]), accepted, 0)
        cells = {name: column[:] for name, column in file["acceptance"].items()}
        rows = table(report, "Drafts accepted")
        shown = [d for d in range(len(file["drafter_names_offsets"]) - 1) if (cells["drafter"] == d).any()]
        for position, *values in rows:
            for d, share, count in zip(shown, values[::2], values[1::2]):
                here = (cells["drafter"] == d) & (cells["position"] == int(position))
                compared.same(f"drafted at {position}", int(count), int(cells["drafted"][here].sum()), 0)
                if share != "-":
                    found = 100 * cells["accepted"][here].sum() / cells["drafted"][here].sum()
                    compared.same(f"accepted at {position}", float(share), found, 0.06)

        with open(sys.argv[3]) as trace:
            events = json.load(trace)["traceEvents"]
        steps = sum(int((rank["steps/duration"][:] > 0).sum()) for rank in file["ranks"].values())
        compared.same("steps of the trace", sum(e["name"] == "step" for e in events), steps, 0)
        named = [e["args"]["name"] for e in events if e["name"] == "process_name"]
        host = re.escape(here_alone) if here_alone else r"\S+"
        right = sum(bool(re.fullmatch(host + r": rank \d+, attempt \d+", n)) for n in named)
        compared.same("processes of the trace", right, len(file["processes/rank"]), 0)
    print(f"{compared.count} figures compared, {compared.wrong} differ")
    sys.exit(compared.wrong > 0 or compared.count < 80)


if __name__ == "__main__":
    main()
