"""What every peer written in Python is measured with: the same commands and answers as `rust/measure`.

A peer is a class with `setup(args)` and `opened(args)` (an async context manager) as static methods, and `settings`,
`submit(job)`, `submit_all(jobs)`, `work(handle)` (an async context manager: a worker that, when left, has completed all
that was handled) and `check()`.
"""

import argparse
import asyncio
import json
import sys
import time

BYTES = 200
CHUNK = 1_000

# Nanoseconds of a clock that all processes share.
now = time.monotonic_ns


def new_job(n: int) -> dict:
    job = {"n": n, "at": now(), "pad": ""}
    job["pad"] = "x" * (BYTES - len(json.dumps(job, separators=(",", ":"))))
    return job


def quantile_ms(ordered: list[int], part: float) -> float | None:
    if not ordered:
        return None
    rank = -(-len(ordered) * part // 1)
    return ordered[max(0, int(rank) - 1)] / 1e6


async def bulk(peer, args) -> dict:
    began = now()
    for first in range(0, args.jobs, CHUNK):
        await peer.submit_all([new_job(n) for n in range(first, min(args.jobs, first + CHUNK))])
    return {"jobs": args.jobs, "began": began, "ended": now(), "settings": peer.settings}


async def call(peer, args) -> dict:
    """Callers who submit one job at a time, each as often as it can, at a rate or with a gap."""
    began = now()
    end = began + args.seconds * 1e9
    took: list[int] = []
    numbers = iter(range(sys.maxsize))

    async def caller(number: int) -> None:
        turn = 0
        while True:
            if args.rate:
                due = began + (turn * args.callers + number) / args.rate * 1e9
                await asyncio.sleep(max(0, due - now()) / 1e9)
            if now() >= end:
                return
            called = now()
            await peer.submit(new_job(next(numbers)))
            took.append(now() - called)
            if args.gap_ms:
                # Between one and one and a half times the gap, so that nobody who polls falls into step.
                await asyncio.sleep(args.gap_ms * (1 + turn * 0.61803398875 % 1 / 2) / 1e3)
            turn += 1

    await asyncio.gather(*(caller(number) for number in range(args.callers)))
    took.sort()
    return {
        "jobs": len(took),
        "began": began,
        "ended": now(),
        "call_p50_ms": quantile_ms(took, 0.50),
        "call_p99_ms": quantile_ms(took, 0.99),
        "settings": peer.settings,
    }


async def work(peer, _args) -> dict:
    """Works until as many jobs are handled as a line of the runner says."""
    numbers: set[int] = set()
    waited: list[int] = []
    state = {"expected": None, "repeated": 0, "last": 0}
    over = asyncio.Event()

    def handle(job: dict) -> None:
        if job["n"] in numbers:
            state["repeated"] += 1
            return
        numbers.add(job["n"])
        state["last"] = now()
        waited.append(state["last"] - job["at"])
        if len(numbers) == state["expected"]:
            over.set()

    began = now()
    async with peer.work(handle):
        print(json.dumps({"ready": True}), flush=True)
        state["expected"] = int(await asyncio.to_thread(sys.stdin.readline))
        if len(numbers) != state["expected"]:
            await over.wait()
    waited.sort()
    return {
        "jobs": len(numbers),
        "repeated": state["repeated"],
        "began": began,
        "ended": state["last"],
        "p50_ms": quantile_ms(waited, 0.50),
        "p99_ms": quantile_ms(waited, 0.99),
        "settings": peer.settings,
    }


async def check(peer, _args) -> dict:
    return await peer.check()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["setup", "bulk", "call", "work", "check"])
    parser.add_argument("url")
    parser.add_argument("--workload", default="")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--gap-ms", type=float, default=0)
    return parser.parse_args()


async def run(peer_class) -> None:
    args = parse()
    if args.command == "setup":
        await peer_class.setup(args)
        print("{}")
        return
    command = {"bulk": bulk, "call": call, "work": work, "check": check}[args.command]
    async with peer_class.opened(args) as peer:
        answer = await command(peer, args)
    print(json.dumps(answer))


def main(peer_class) -> None:
    asyncio.run(run(peer_class))
