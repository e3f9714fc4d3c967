"""The command `run`."""

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import signal
import sys
from pathlib import Path

from . import peers, plot, report, server, workloads


def main() -> None:
    args = parse()
    # Whoever ends this also ends the server and the programs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = pick([peer.name for peer in peers.PEERS], args.only, "peer")
    chosen = [peer for peer in peers.PEERS if peer.name in chosen]
    names = pick(list(workloads.WORKLOADS), args.workload, "workload")
    if "half" in names and "steady" not in names:
        names.insert(names.index("half"), "steady")
    scale = workloads.QUICK if args.quick else workloads.FULL
    scale = dataclasses.replace(scale, rounds=args.rounds or scale.rounds)
    peers.install({peer.kind for peer in chosen})
    with contextlib.ExitStack() as stack:
        postgres = None
        if any(peer.store == "postgres" for peer in chosen):
            postgres = server.Server(args.url) if args.url else stack.enter_context(server.private())
        runs = measure(chosen, names, scale, postgres)
        found = {
            "machine": machine(postgres),
            "scale": vars(scale),
            "workloads": {name: workloads.WORKLOADS[name] for name in names},
            "peers": report.medians(runs),
            "runs": runs,
        }
    out = Path(args.json or peers.WORK / "peers.json")
    out.write_text(json.dumps(found, indent=1) + "\n")
    out.with_suffix(".md").write_text(report.table(found))
    out.with_suffix(".svg").write_text(plot.svg(found))
    print("\n" + report.table(found))
    print(f"written: {out} and, beside it, .md and .svg")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/peers/run", description="Measures Plimsoll and its peers side by side.")
    parser.add_argument("--only", metavar="NAME,...", help="these peers instead of all")
    parser.add_argument("--workload", metavar="NAME,...", help="these workloads instead of all")
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works")
    parser.add_argument("--rounds", metavar="N", type=int, help="so many rounds instead of three, or of one with --quick")
    parser.add_argument("--json", metavar="FILE", help="where to write; a table and a plot go beside it")
    parser.add_argument("--url", metavar="postgres://...", help="an existing PostgreSQL; else a private one is started")
    return parser.parse_args()


def pick(all_names: list[str], asked: str | None, what: str) -> list[str]:
    if asked is None:
        return all_names
    for name in asked.split(","):
        if name not in all_names:
            sys.exit(f"no such {what}: {name}; there are {', '.join(all_names)}")
    return [name for name in all_names if name in asked.split(",")]


def measure(chosen: list, names: list[str], scale, postgres) -> list[dict]:
    """Peers take turns in each round, so that what the machine does meanwhile hits all of them alike."""
    runs = []
    for turn in range(scale.rounds):
        steady = {}
        for name in names:
            for peer in chosen:
                print(f"round {turn + 1} of {scale.rounds}: {name:7} {peer.name:16}", end=" ", flush=True)
                figures = workloads.trial(peer, name, scale, postgres, steady.get(peer.name))
                if name == "steady":
                    steady[peer.name] = figures["per_second"]
                runs.append({"round": turn + 1, "peer": peer.name, "store": peer.store, "workload": name, **figures})
                print(report.line(figures), flush=True)
    return runs


def machine(postgres) -> dict:
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "postgres": postgres and postgres.version,
        "postgres_settings": postgres and server.SETTINGS,
    }
