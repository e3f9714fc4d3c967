"""procrastinate on PostgreSQL."""

import asyncio
import contextlib
import logging

import measure
import procrastinate

CONNECTIONS = 32
CONCURRENCY = 32

# Nothing but errors: a line for each job would be what is measured.
logging.disable(logging.INFO)


def app_of(url: str) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=CONNECTIONS)
    return procrastinate.App(connector=connector)


class Procrastinate:
    settings = {
        "submit": "defer_async; bulk by batch_defer_async",
        "work": f"concurrency {CONCURRENCY}, LISTEN/NOTIFY",
        "connections": CONNECTIONS,
    }

    def __init__(self, app: procrastinate.App):
        self.app = app
        self.handle = None

        @app.task(name="work", queue="bench")
        async def task(job: dict) -> None:
            self.handle(job)

        self.task = task

    @staticmethod
    async def setup(args) -> None:
        async with app_of(args.url).open_async() as app:
            await app.schema_manager.apply_schema_async()

    @staticmethod
    @contextlib.asynccontextmanager
    async def opened(args):
        async with app_of(args.url).open_async() as app:
            yield Procrastinate(app)

    async def submit(self, job: dict) -> None:
        await self.task.defer_async(job=job)

    async def submit_all(self, jobs: list[dict]) -> None:
        await self.task.batch_defer_async(*({"job": job} for job in jobs))

    @contextlib.asynccontextmanager
    async def work(self, handle):
        self.handle = handle
        worker = asyncio.create_task(
            self.app.run_worker_async(
                queues=["bench"],
                concurrency=CONCURRENCY,
                fetch_job_polling_interval=0.5,
                install_signal_handlers=False,
            )
        )
        yield
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker

    async def check(self) -> dict:
        return await self.app.connector.execute_query_one_async(
            """SELECT count(*) FILTER (WHERE status = 'succeeded') AS completed,
                      count(*) FILTER (WHERE status <> 'succeeded') AS left
               FROM procrastinate_jobs"""
        )


measure.main(Procrastinate)
