"""report_figures.py TELEMETRY REPORT TRACE: compares what `paceline report` printed with figures computed from telemetry.h5.

Written from the layout of the file alone (io/hdf5/telemetry.hpp), so that neither repeats the other's faults.
"""

import json
import re
import sys

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
    begin, spans = 0.0, {}
    for attempt in sorted(length):
        spans[attempt] = (begin, length[attempt])
        begin += length[attempt]
    return spans


def main() -> None:
    report = open(sys.argv[2]).read()
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
        for share, after, _ in table(report, "Responses finished"):
            at = max(1, int(np.ceil(float(share) / 100 * len(ends)))) - 1
            compared.same(f"{share} % finished", float(after), ends[at], 6e-4)
        (row,) = table(report, "Response lengths")
        for said, share in zip(row, (0.5, 0.95, 0.99)):
            compared.same(f"length p{100 * share:.0f}", float(said), lengths[int(share * len(lengths))], 0)
        compared.same("longest", float(row[3]), lengths[-1], 0)
        compared.same("mean length", float(row[4]), lengths.mean(), 0.06)

        phases = {name: np.zeros(len(file["ranks"])) for name in
                  ("loading", "prefill", "decode", "verify", "draft", "sample", "other", "idle")}
        drafted = accepted = 0
        for i, number in enumerate(sorted(file["ranks"], key=int)):
            s = {name: column[:] for name, column in file[f"ranks/{number}/steps"].items()}
            rows = np.maximum(1, s["prefill_tokens"].astype(float) + s["decode_tokens"])
            forward = s["forward_duration"]
            verify = forward * np.minimum(s["drafted"], s["decode_tokens"]) / rows
            prefill = forward * s["prefill_tokens"] / rows
            phases["prefill"][i] = prefill.sum()
            phases["verify"][i] = verify.sum()
            phases["decode"][i] = (forward - prefill - verify).sum()
            phases["draft"][i] = s["draft_duration"].sum()
            phases["sample"][i] = s["sample_duration"].sum()
            rest = s["duration"] - forward - s["draft_duration"] - s["sample_duration"]
            phases["other"][i] = np.maximum(0, rest).sum()
            mine = file["roles/rank"][:] == int(number)
            first = mine & (file["roles/epoch"][:] == 0)
            phases["loading"][i] = (file["roles/start"][:] + file["roles/preparing"][:])[first].sum()
            there = sum(spans[int(a)][1] for a in set(file["roles/attempt"][:][mine]))
            phases["idle"][i] = max(0, there - sum(p[i] for p in phases.values()))
            leads = s["role"] == VERIFIER
            drafted += int(s["drafted"][leads].sum())
            accepted += int(s["accepted"][leads].sum())
        for name, least, mean, most, _, _ in table(report, "Where the time went"):
            for what, said, found in (("min", least, phases[name].min()), ("mean", mean, phases[name].mean()),
                                      ("max", most, phases[name].max())):
                compared.same(f"{name}, {what}", float(said), found, 6e-4)

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
        steps = sum(len(rank["steps/start"]) for rank in file["ranks"].values())
        compared.same("steps of the trace", sum(e["name"] == "step" for e in events), steps, 0)
    print(f"{compared.count} figures compared, {compared.wrong} differ")
    sys.exit(compared.wrong > 0 or compared.count < 40)


if __name__ == "__main__":
    main()
