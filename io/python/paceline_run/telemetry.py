"""How a complete run went: its telemetry.h5."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple, Union

import h5py
import numpy as np

from .columns import column_of, guarded, opened, strings_of
from .records import PathLike, ReaderError

TELEMETRY_SCHEMA_VERSION = 13
TRANSFER_COLUMNS = ("attempt", "rank", "start", "duration", "peer", "bytes", "sends")
ROLE_DRAFTER = 2  #: in /ranks/<rank>/steps/role


def acceptance(path: PathLike, by: Union[str, Sequence[str]] = "position") -> Dict[str, np.ndarray]:
    """Draft tokens verified and accepted in a complete run, from its telemetry.

    `path` is the run's directory or its telemetry.h5. The counts are summed by one or several of
    "drafter" (its name), "position" (1 follows the last committed token), "batch" (decoding
    requests in the step) and "progress" (response tokens before the draft), the last two rounded
    down to a power of two, "rank" and "attempt". Drafters "history:1", "history:2" and so on count
    drafts of "suffix" again, of responses of so many steps ago, and only "drafter" tells of them.

    Returns columns of one length: those of `by`, then "drafted", "accepted" (int64) and "rate", in
    rising order of `by` (drafters by number). A run without drafts gives columns without elements.
    """
    dimensions = ("drafter", "position", "batch", "progress", "rank", "attempt")
    names = [by] if isinstance(by, str) else list(by)
    for name in names:
        if name not in dimensions:
            raise ValueError(f"by {name!r}, expected some of {list(dimensions)}")
    with _telemetry(path) as file:
        file_name = file.filename
        group = file["acceptance"]
        counts = {
            name: column_of(group, name)[:].astype(np.int64) for name in ("drafted", "accepted")
        }
        keys = np.empty((len(counts["drafted"]), len(names)), np.int64)
        for column, name in enumerate(names):
            keys[:, column] = column_of(group, name)[:]
        drafters = np.asarray(strings_of(file, "drafter_names"), dtype=object)
        numbers = column_of(group, "drafter")[:]
        if len(counts["accepted"]) != len(keys) or np.any(numbers >= len(drafters)):
            raise ReaderError(f"{file_name}: the columns of /acceptance are damaged")
    if "drafter" not in names:
        again = np.asarray([str(name).startswith("history:") for name in drafters], bool)[numbers]
        keys = keys[~again]
        counts = {name: values[~again] for name, values in counts.items()}
    rows, row_of = np.unique(keys, axis=0, return_inverse=True)
    table: Dict[str, np.ndarray] = {name: rows[:, i] for i, name in enumerate(names)}
    if "drafter" in table:
        table["drafter"] = drafters[table["drafter"]]
    for name, values in counts.items():
        table[name] = np.zeros(len(rows), np.int64)
        np.add.at(table[name], row_of.reshape(-1), values)
    table["rate"] = table["accepted"] / np.maximum(table["drafted"], 1)
    return table


def attempts(path: PathLike) -> Dict[str, np.ndarray]:
    """When the attempts at a complete run began and ended, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by attempt:
    "attempt" and "ranks" (int64), "started" and "ended" (float64, Unix time; of a simulation they
    begin at 0), and "seconds" (float64) from one to the other. The end is the last moment that any
    rank recorded: a rank that was killed recorded it up to a second before, and that of the attempt
    that came to the run's end is when all but the end of telemetry.h5 was written.
    """
    with _telemetry(path) as file:
        table = _columns(file["attempts"], ("attempt", "ranks"), ("started", "ended"))
    table["seconds"] = table["ended"] - table["started"]
    return table


def rank_seconds(path: PathLike) -> Dict[str, np.ndarray]:
    """Where ranks of a complete run were and what their time went to, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by (attempt,
    rank), of the ranks that came to an attempt's end: "attempt" and "rank" (int64), "host" and
    "role" (str, the last), and in seconds (float64) "busy" in steps, "idle" between them,
    "communication" (of busy ones, in collectives of the rank's group, waiting for the others
    included), "loading" weights, and "flush", writing shards until then; and "group_bytes" (int64),
    sent by those collectives.
    """
    seconds = ("busy", "idle", "communication", "loading", "flush")
    with _telemetry(path) as file:
        group = file["summary"]
        table = _columns(group, ("attempt", "rank", "group_bytes"))
        table.update({name: column_of(group, f"{name}_seconds")[:] for name in seconds})
        names_of_roles = strings_of(file, "role_names")
        table["role"] = np.array([names_of_roles[r] for r in column_of(group, "role")[:]], object)
        places = (column_of(file, f"processes/{name}")[:].tolist() for name in ("attempt", "rank"))
        hosts = dict(zip(zip(*places), strings_of(file, "processes/host")))
    at = zip(table["attempt"].tolist(), table["rank"].tolist())
    table["host"] = np.array([hosts.get(place, "") for place in at], object)
    return table


def writes(path: PathLike) -> Dict[str, np.ndarray]:
    """What ranks of a complete run wrote into its directory, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by (attempt,
    rank, start): "attempt" and "rank" (int64), "start" (seconds since the attempt began) and
    "seconds" (float64), and "kind" (str): "trajectories" and "telemetry" into the rank's own shards,
    "final_trajectories" and "final_telemetry" of all ranks by rank 0. A simulation writes nothing.
    """
    with _telemetry(path) as file:
        return _columns(file["writes"], ("attempt", "rank"), ("start", "duration"), "kind")


def races(path: PathLike) -> Dict[str, np.ndarray]:
    """Best-of-N in a complete run: who generated a request that another group held, from its
    telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by
    (attempt, start): "attempt", "rank" (that raced), "prompt_index", "sample_index" and "begin"
    (int64; tokens of the response when the race began), "start" (float64, seconds since the
    attempt began), "method" (str: the drafter), "seconds" (float64, until it ended), "tokens"
    (int64; of the response there by then) and "won" (bool: it came to the response's end before
    it heard of it). Of a race that the run's end cut short the last three are NaN, -1 and
    False.
    """
    columns = ("attempt", "rank", "prompt_index", "sample_index")
    columns += ("tokens", "method", "kind", "time")
    with _telemetry(path) as file:
        requests = file["requests"]
        kinds = {name: int(number) for name, number in requests["kind"].attrs.items()}
        rows = list(zip(*(column_of(requests, name)[:].tolist() for name in columns)))
        drafters = strings_of(file, "drafter_names")
    begun: List[Dict[str, Any]] = []
    running: Dict[Tuple[int, ...], Dict[str, Any]] = {}
    for attempt, rank, prompt, sample, tokens, method, kind, time in rows:
        key = (attempt, rank, prompt, sample)
        if kind == kinds["race_begun"]:
            race = dict(zip(columns[:4], key), begin=tokens, start=time)
            race.update(seconds=np.nan, tokens=-1, won=False)
            race["method"] = drafters[method] if 0 <= method < len(drafters) else ""
            begun.append(race)
            running[key] = race
        elif kind in (kinds["race_left"], kinds["race_won"]) and key in running:
            race = running.pop(key)
            race.update(seconds=time - race["start"], tokens=tokens, won=kind == kinds["race_won"])
    types = {"start": np.float64, "seconds": np.float64, "method": object, "won": np.bool_}
    names = (*columns[:4], "begin", "start", "method", "seconds", "tokens", "won")
    return {n: np.array([race[n] for race in begun], types.get(n, np.int64)) for n in names}


def model_scale(path: PathLike) -> Dict[str, np.ndarray]:
    """What it took ranks of a complete run to become something else in mid-run, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by
    (attempt, rank, start): "attempt", "rank", "epoch" (int64; of the placement), "role" (str),
    "start" (float64, when the rank left its last place; seconds since the attempt began, like
    the next), and in seconds "preparing" until it could take part, of which "loading" weights,
    and "first_step", from `start` to the end of its first step there, or of its first drafting
    (nan: there was none).
    """
    with _telemetry(path) as file:
        names = ("attempt", "rank", "epoch", "start", "preparing", "loading", "role")
        roles = {c: column_of(file, f"roles/{c}")[:] for c in names}
        names_of_roles = strings_of(file, "role_names")
        first_step = np.full(len(roles["rank"]), np.nan)
        for rank in np.unique(roles["rank"]):
            names = ("attempt", "start", "duration")
            steps = {c: column_of(file, f"ranks/{rank}/steps/{c}")[:] for c in names}
            of_rank = np.flatnonzero(roles["rank"] == rank)
            for row in of_rank:
                attempt, start = roles["attempt"][row], roles["start"][row]
                starts = roles["start"][of_rank]
                later = starts[(roles["attempt"][of_rank] == attempt) & (starts > start)]
                end = later.min() if len(later) else np.inf
                made = (steps["start"] >= start) & (steps["start"] < end)
                made &= steps["attempt"] == attempt
                if made.any():
                    step = np.flatnonzero(made)[np.argmin(steps["start"][made])]
                    first_step[row] = steps["start"][step] + steps["duration"][step] - start
    changes = roles["epoch"] > 0
    table = {n: roles[n][changes].astype(np.int64) for n in ("attempt", "rank", "epoch")}
    table["role"] = np.array([names_of_roles[role] for role in roles["role"][changes]], object)
    for name in ("start", "preparing", "loading"):
        table[name] = roles[name][changes].astype(np.float64)
    table["first_step"] = first_step[changes]
    return table


def kv_scale(path: PathLike) -> Dict[str, np.ndarray]:
    """KV that ranks of a complete run got from others, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by
    (attempt, start): "attempt", "rank", "peer" and "bytes" (int64), "start" and "seconds"
    (float64, as the receiving rank saw it). What was given up is left out.
    """
    with _telemetry(path) as file:
        moved = {c: column_of(file, f"transfers/{c}")[:] for c in TRANSFER_COLUMNS + ("complete",)}
    here = (moved["sends"] == 0) & (moved["complete"] == 1)
    table = {n: moved[n][here].astype(np.int64) for n in ("attempt", "rank", "peer", "bytes")}
    table["start"] = moved["start"][here]
    table["seconds"] = moved["duration"][here]
    return table


def kv_pool(path: PathLike) -> Dict[str, np.ndarray]:
    """What ranks of a complete run put into the KV pool and took out of it, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by
    (attempt, start): "attempt", "rank" and "bytes" (int64), "start" and "seconds" (float64), "use"
    (str: "stored", "restored" by the rank itself, "sent" to ranks of another group), "complete"
    (bool; what is not was computed again), and what the rank's two tiers held at its end,
    "memory_bytes" and "disk_bytes" (int64).
    """
    with _telemetry(path) as file:
        names = ("attempt", "rank", "bytes", "memory_bytes", "disk_bytes")
        table = _columns(file["kv_pool"], names, ("start", "duration", "complete"), "use")
    table["complete"] = table["complete"] == 1
    return table


def draft_memory(path: PathLike) -> Dict[str, np.ndarray]:
    """Memory of draft models that became KV's in a complete run, and was theirs again, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by
    (attempt, rank, start): "attempt", "rank", "blocks" (of the group's KV pool from then on) and
    "moved" (blocks that were copied to below its new end; int64), "start", "seconds" and
    "longest_pause" (of decoding; float64), and "kind" (str): the pool "expanded", it "contracted",
    or the models were "resumed", during which decoding goes on.
    """
    with _telemetry(path) as file:
        names = ("attempt", "rank", "blocks", "moved")
        numbers = ("start", "duration", "longest_pause")
        return _columns(file["draft_memory"], names, numbers, "kind")


def stop_points(path: PathLike) -> Dict[str, np.ndarray]:
    """What a run with record_stops recorded for a network that ends drafts (RADAR's dataset).

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, a row for each draft tree:
    "attempt", "rank", "prompt_index", "sample_index" and "first" (int64; index in the response of the first drafted
    token), "states" (float32, [points, 7, 10]: after each call of the head but the last the log-probabilities of the
    ten paths that go on, the likeliest first), "lengths" (float32, [points, 8, 9]: how likely 0 ... 8 drafted tokens
    are accepted where the draft ends after 1 ... 8 calls) and "accepted" (int64, [points, 8]: how many would have
    been). A run that recorded none gives columns without elements.
    """
    with _telemetry(path) as file:
        names = ("attempt", "rank", "prompt_index", "sample_index", "first", "accepted")
        return _columns(file["stop_points"], names, ("states", "lengths"))


def draft_servers(path: PathLike) -> Dict[str, np.ndarray]:
    """What ranks of a complete run told draft servers and heard from them, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by
    (attempt, rank), of the ranks that asked any: "attempt", "rank", "update_bytes" (told),
    "fetch_bytes" (of answers), "fetches" (answers), "heard" (tokens in them) and "most_behind"
    (int64; tokens that the rank lacked at one of them, at most), "behind" (float64; likewise, on
    average) and "seconds" (float64, from asking until the answer was read, on average).
    """
    names = ("update_bytes", "fetch_bytes", "fetches", "heard", "most_behind", "fetch_seconds")
    with _telemetry(path) as file:
        all_ = {n: column_of(file, f"summary/draft_{n}")[:] for n in names}
        for n in ("attempt", "rank"):
            all_[n] = column_of(file, f"summary/{n}")[:]
    asked = all_["fetches"] > 0
    table = {n: all_[n][asked].astype(np.int64) for n in ("attempt", "rank") + names[:-1]}
    table["behind"] = table["heard"] / table["fetches"]
    table["seconds"] = all_["fetch_seconds"][asked] / table["fetches"]
    return table


def scores(path: PathLike) -> Dict[str, np.ndarray]:
    """How the responses of a complete run were scored, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by (attempt,
    start): "attempt", "rank", "prompt_index" and "sample_index" (int64), "start" and "duration"
    (float64, of the last try), "outcome" ("scored", "refused", "garbage", "timed_out", "died" or
    "not_tried") and "reward" (float32, NaN unless scored).
    """
    with _telemetry(path) as file:
        group = file["scores"]
        integers = ("attempt", "rank", "prompt_index", "sample_index")
        table = {**_columns(group, integers), **{n: column_of(group, n)[:] for n in ("start", "duration", "reward")}}
        outcome = column_of(group, "outcome")
        names = {int(number): name for name, number in outcome.attrs.items()}
        table["outcome"] = np.array([names.get(int(o), "unknown") for o in outcome[:]], object)
    return table


def timeline(path: PathLike, attempt: int = -1) -> Dict[str, np.ndarray]:
    """What every rank of a complete run did when, from its telemetry.

    `path` is the run's directory or its telemetry.h5; `attempt` -1 is the last. Returns columns of
    one length, by (rank, start): "rank" (int64), "what" (str), "start" and "duration" (float64,
    seconds since the attempt began), and "peer" (int64, -1 but for transfers) and "bytes" (int64).
    "what" is

      "step"             a verifier's or a member's, without its drafting; a drafter rank's drafting
      "draft"            the part of a verifier's step in which drafts were made
      "wait"             for verification (drafter ranks), for KV (verifiers)
      "send", "receive"  of KV blocks, to or from `peer`, beside whatever else the rank did
      "write"            into the output directory, within a step or between them
      "become ROLE"      taking a new place in mid-run, by the roles' names in the file
    """
    with _telemetry(path) as file:
        if attempt < 0:
            numbers = column_of(file, "attempts/attempt")[:]
            if len(numbers) == 0:
                raise ReaderError(f"{file.filename}: no attempts")
            attempt = int(numbers.max())
        spans: List[Tuple[np.ndarray, ...]] = []

        def add(
            rank: Any,
            what: Any,
            start: np.ndarray,
            duration: np.ndarray,
            peer: Any = -1,
            size: Any = 0,
        ) -> None:
            columns = np.broadcast_arrays(
                rank, np.asarray(what, object), start, duration, peer, size
            )
            spans.append(tuple(column[columns[3] > 0] for column in columns))

        for name, group in file["ranks"].items():
            names = ("start", "duration", "draft_duration", "waited")
            steps = {c: column_of(group, f"steps/{c}")[:] for c in names + ("attempt", "role")}
            here = steps["attempt"] == attempt
            start, duration, draft, waited = (steps[c][here] for c in names)
            drafting = np.where(steps["role"][here] == ROLE_DRAFTER, 0, draft)
            add(int(name), "wait", start - waited, waited)
            add(int(name), "draft", start, drafting)
            add(int(name), "step", start + drafting, duration - drafting)
        moved = {c: column_of(file, f"transfers/{c}")[:] for c in TRANSFER_COLUMNS}
        here = moved.pop("attempt") == attempt
        rank, start, duration, peer, size, sends = (moved[c][here] for c in TRANSFER_COLUMNS[1:])
        add(rank, np.where(sends == 1, "send", "receive"), start, duration, peer, size)
        wrote = {c: column_of(file, f"writes/{c}")[:] for c in ("attempt", "rank", "start", "duration")}
        here = wrote.pop("attempt") == attempt
        rank, start, duration = (column[here] for column in wrote.values())
        add(rank, "write", start, duration)
        roles = {
            c: column_of(file, f"roles/{c}")[:]
            for c in ("attempt", "rank", "start", "preparing", "role", "epoch")
        }
        here = (roles["attempt"] == attempt) & (roles["epoch"] > 0)
        names_of_roles = strings_of(file, "role_names")
        what = np.array([f"become {names_of_roles[role]}" for role in roles["role"][here]], object)
        add(roles["rank"][here], what, roles["start"][here], roles["preparing"][here])
    columns = [np.concatenate(parts) for parts in zip(*spans)]
    order = np.lexsort((columns[2], columns[0]))
    types = (np.int64, object, np.float64, np.float64, np.int64, np.int64)
    names = ("rank", "what", "start", "duration", "peer", "bytes")
    return {n: c[order].astype(t) for n, c, t in zip(names, columns, types)}


def _columns(
    group: h5py.Group, integers: Iterable[str], numbers: Iterable[str] = (), word: str = ""
) -> Dict[str, np.ndarray]:
    """Columns of a group: integers as int64, numbers as stored ("duration" as "seconds"), and `word`,
    whose values are named by its attributes."""
    table = {name: column_of(group, name)[:].astype(np.int64) for name in integers}
    for name in numbers:
        table["seconds" if name == "duration" else name] = column_of(group, name)[:]
    if word:
        column = column_of(group, word)
        words = {int(value): name for name, value in column.attrs.items()}
        table[word] = np.array([words[value] for value in column[:]], object)
    return table


@contextlib.contextmanager
def _telemetry(path: PathLike) -> Iterator[h5py.File]:
    """The telemetry of a run's directory, or of the file itself."""
    name = os.fspath(path)
    if os.path.isdir(name):
        name = os.path.join(name, "telemetry.h5")
    with opened(name, "not telemetry") as file, guarded(name, "not telemetry"):
        version = file.attrs.get("schema_version")
        if version != TELEMETRY_SCHEMA_VERSION or "acceptance" not in file:
            raise ReaderError(f"{name}: not telemetry of schema version {TELEMETRY_SCHEMA_VERSION}")
        yield file
