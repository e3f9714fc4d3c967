"""What is measured. Each workload has a fresh database, and ends with a look into the books of the peer."""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .peers import Peer
from .program import run, running
from .server import Server

CALLERS = 64
GAP_MS = 20


@dataclass(frozen=True)
class Scale:
    """How much to do."""

    #: Jobs of drain and bulk.
    jobs: int
    #: For how long callers call.
    seconds: float
    #: How often all is done.
    rounds: int


FULL = Scale(jobs=100_000, seconds=15, rounds=3)
QUICK = Scale(jobs=10_000, seconds=4, rounds=1)


class Trial:
    """One workload of one peer, on a database of its own."""

    def __init__(self, peer: Peer, workload: str, url: str, scale: Scale, server: Server | None, database: str):
        self.peer, self.workload, self.url, self.scale = peer, workload, url, scale
        self.server, self.database = server, database
        self.jobs = scale.jobs // peer.slow

    def command(self, verb: str) -> list[str]:
        keys = ["--keys", "true"] if self.peer.keys else []
        return [*self.peer.command(), verb, self.url, "--workload", self.workload, *keys]

    def run(self, steady: float | None) -> dict:
        run(self.command("setup"))
        match self.workload:
            case "bulk":
                return self.bulk()
            case "drain":
                return self.drain()
            case "single":
                return self.single()
            case "steady":
                return self.steady(callers=CALLERS)
            case "pickup":
                return self.steady(callers=1, gap_ms=GAP_MS)
            case "half":
                return self.steady(callers=CALLERS, rate=steady / 2) | {"asked_per_second": steady / 2}

    def bulk(self) -> dict:
        bulk = run(self.command("bulk"), jobs=self.jobs)
        self.check(completed=0, left=self.jobs)
        return rated(bulk, bulk)

    def drain(self) -> dict:
        with self.written() as written:
            run(self.command("bulk"), jobs=self.jobs)
            with running(self.command("work")) as worker:
                worker.answer()
                worker.tell(self.jobs)
                work = worker.answer()
        self.check(completed=self.jobs, left=0, work=work)
        return rated(work, work) | per_job(written, self.jobs)

    def single(self) -> dict:
        call = run(self.command("call"), callers=CALLERS, seconds=self.scale.seconds)
        self.check(completed=0, left=call["jobs"])
        return rated(call, call) | {name: call[name] for name in ("call_p50_ms", "call_p99_ms")}

    def steady(self, **load) -> dict:
        """Callers and a worker: two processes, or one where the store belongs to a process."""
        load["seconds"] = self.scale.seconds
        with self.written() as written:
            if self.peer.store == "sqlite":
                with running(self.command("both"), **load) as program:
                    program.answer()
                    both = program.answer()
                call, work = both["call"], both["work"]
            else:
                with running(self.command("work")) as worker:
                    worker.answer()
                    call = run(self.command("call"), **load)
                    worker.tell(call["jobs"])
                    work = worker.answer()
        self.check(completed=call["jobs"], left=0, work=work)
        waited = {name: work[name] for name in ("p50_ms", "p99_ms")}
        return rated(call, work) | waited | per_job(written, call["jobs"])

    def check(self, completed: int, left: int, work: dict | None = None) -> None:
        """Every job was done, once, and the peer's own tables say so."""
        books = run(self.command("check"))
        # Who deletes what is done has no more to say than that nothing is left.
        if books["completed"] is None:
            books["completed"] = completed
        if (books["completed"], books["left"]) != (completed, left):
            raise RuntimeError(f"{self}: {books} in its tables, not {completed} completed and {left} left")
        if work and (work["jobs"], work["repeated"]) != (completed, 0):
            raise RuntimeError(f"{self}: {work['jobs']} of {completed} handled, {work['repeated']} more than once")

    @contextlib.contextmanager
    def written(self):
        """Says what was written in the block, once it is over."""
        written = {}
        before = self.server and self.server.written(self.database)
        yield written
        if self.server:
            after = self.server.written(self.database)
            written.update(wal_bytes=after[0] - before[0], commits=after[1] - before[1])

    def __str__(self) -> str:
        return f"{self.peer.name}, {self.workload}"


def rated(first: dict, last: dict) -> dict:
    """How many jobs a second, from the begin of one command to the last handler, or answer, of the other."""
    seconds = (last["ended"] - first["began"]) / 1e9
    settings = last["settings"]
    return {"jobs": last["jobs"], "seconds": seconds, "per_second": last["jobs"] / seconds, "settings": settings}


def per_job(written: dict, jobs: int) -> dict:
    return {f"{name}_per_job": amount / jobs for name, amount in written.items()}


def trial(peer: Peer, workload: str, scale: Scale, server: Server | None, steady: float | None) -> dict:
    if peer.store == "sqlite":
        # Not in memory: see `server.private`.
        with tempfile.TemporaryDirectory(prefix="peers-", dir="/var/tmp") as folder:
            url = f"sqlite:{Path(folder) / 'bench.db'}"
            return Trial(peer, workload, url, scale, None, "").run(steady)
    database = f"bench_{peer.name}_{workload}".replace("-", "_")
    with server.database(database) as url:
        return Trial(peer, workload, url, scale, server, database).run(steady)


WORKLOADS = {
    "drain": "a backlog submitted in bulk, worked by one process",
    "bulk": "jobs submitted by the thousand",
    "single": f"{CALLERS} callers submit one job each, as often as they can",
    "steady": f"{CALLERS} such callers while one process works",
    "pickup": "one job at a time for an idle worker",
    "half": "at half of the rate of steady",
}
