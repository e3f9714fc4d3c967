"""Figures for people: a line while it runs, a table at the end."""

from statistics import median

# Column, workload, figure, and whether more is better.
COLUMNS = [
    ("drain, jobs/s", "drain", "per_second", True),
    ("bulk, jobs/s", "bulk", "per_second", True),
    ("single, jobs/s", "single", "per_second", True),
    ("steady, jobs/s", "steady", "per_second", True),
    ("pickup p50, ms", "pickup", "p50_ms", False),
    ("pickup p99, ms", "pickup", "p99_ms", False),
    ("half load p50, ms", "half", "p50_ms", False),
    ("half load p99, ms", "half", "p99_ms", False),
    ("drain, WAL bytes/job", "drain", "wal_bytes_per_job", False),
    ("drain, commits/job", "drain", "commits_per_job", False),
    ("steady, WAL bytes/job", "steady", "wal_bytes_per_job", False),
    ("steady, commits/job", "steady", "commits_per_job", False),
]


def medians(runs: list[dict]) -> dict:
    """By peer and workload, the median of each figure over all rounds."""
    peers: dict = {}
    for run in runs:
        peer = peers.setdefault(run["peer"], {"store": run["store"], "workloads": {}})
        peer["workloads"].setdefault(run["workload"], []).append(run)
    for peer in peers.values():
        for name, same in peer["workloads"].items():
            numbers = [key for key, value in same[0].items() if isinstance(value, (int, float)) and key != "round"]
            figures = {key: median(run[key] for run in same) for key in numbers}
            peer["workloads"][name] = figures | {"settings": same[0]["settings"]}
    return peers


def figure(peer: dict, workload: str, name: str) -> float | None:
    return peer["workloads"].get(workload, {}).get(name)


def text(number: float | None) -> str:
    """Three digits that matter."""
    if number is None:
        return "–"
    if number >= 100:
        digits = len(str(int(number))) - 3
        return f"{round(number, -digits):,.0f}"
    return f"{number:.3g}"


def line(figures: dict) -> str:
    parts = [f"{text(figures['per_second']):>8} jobs/s"]
    if "p50_ms" in figures:
        parts.append(f"p50 {text(figures['p50_ms'])} ms, p99 {text(figures['p99_ms'])} ms")
    if "wal_bytes_per_job" in figures:
        parts.append(f"{text(figures['wal_bytes_per_job'])} bytes and {text(figures['commits_per_job'])} commits a job")
    return "; ".join(parts)


def table(found: dict) -> str:
    """Peers as columns: there are more figures than peers. The best of each store is bold."""
    peers = found["peers"]
    rows = [["", *peers], ["---", *("---:" for _ in peers)]]
    for title, workload, name, more in COLUMNS:
        numbers = {peer: figure(peers[peer], workload, name) for peer in peers}
        if any(number is not None for number in numbers.values()):
            best = best_of_stores(peers, numbers, more)
            cells = {peer: text(number) + late(peers[peer], workload) for peer, number in numbers.items()}
            rows.append([title, *(f"**{cell}**" if peer in best else cell for peer, cell in cells.items())])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    notes = [LATE] if any(late(peer, name) for peer in peers.values() for name in peer["workloads"]) else []
    return "\n".join([*lines, "", *notes, *settings(peers)]) + "\n"


LATE = "° The callers did not get to that rate: submits take too long while the worker works.\n"


def late(peer: dict, workload: str) -> str:
    """A mark for those who were asked for a rate and stayed more than a tenth below it."""
    asked = figure(peer, workload, "asked_per_second")
    return "°" if asked and figure(peer, workload, "per_second") < 0.9 * asked else ""


def best_of_stores(peers: dict, numbers: dict, more: bool) -> set[str]:
    best = set()
    for store in {peer["store"] for peer in peers.values()}:
        known = {name: n for name, n in numbers.items() if n is not None and peers[name]["store"] == store}
        if known:
            best.add((max if more else min)(known, key=known.get))
    return best


def settings(peers: dict) -> list[str]:
    """What each peer ran with; where a workload has another setting, that too."""
    lines = []
    for name, peer in peers.items():
        by_text: dict[str, list[str]] = {}
        for workload, figures in peer["workloads"].items():
            words = "; ".join(f"{key}: {value}" for key, value in figures["settings"].items())
            by_text.setdefault(words, []).append(workload)
        for words, names in by_text.items():
            scope = "" if len(by_text) == 1 else f" ({', '.join(names)})"
            lines.append(f"- {name}{scope}: {words}")
    return lines
