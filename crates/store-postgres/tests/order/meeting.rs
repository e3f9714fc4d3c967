//! Writers and readers that stop at every place where another could pass.

use futures::future::join;
use plimsoll_core::store::Commit;
use plimsoll_core::{Position, StoreExt};
use plimsoll_store_postgres::PostgresStore;
use plimsoll_store_postgres::tokio_postgres::Client;

use crate::server::{Server, entries_after, hold_up, position_of, until_waited_for};

/// Whoever comes to the gate first waits until the test opens it, everybody else goes on.
const GATE: &str = " PERFORM FROM plimsoll.gate WHERE n = 1 FOR UPDATE SKIP LOCKED;
 IF FOUND THEN PERFORM FROM plimsoll.gate WHERE n = 2 FOR UPDATE; END IF;\n";

/// The function with a gate in each of its places, before and after every step.
fn gated(text: &str) -> Vec<String> {
    let (head, body) = text.split_once("BEGIN\n").expect("a body");
    let steps: Vec<&str> = body.split_inclusive(";\n").collect();
    let reached = |step: &&str| !step.contains("RETURN") && step.ends_with(";\n");
    let places = steps.iter().take_while(|step| reached(step)).count();
    let with = |place: usize| {
        let (before, after) = steps.split_at(place);
        format!("{head}BEGIN\n{}{GATE}{}", before.concat(), after.concat())
    };
    (0..=places).map(with).collect()
}

/// Processes that meet at the gate.
struct Meeting {
    server: Server,
    stores: [PostgresStore; 3],
    gate: Client,
    holder: Client,
    watcher: Client,
}

impl Meeting {
    async fn new() -> Self {
        let server = Server::new().await;
        let gate = server.stranger().await;
        let made = "CREATE TABLE plimsoll.gate AS SELECT n FROM generate_series(1, 2) AS n";
        server.run(&gate, made).await;
        Self {
            stores: [
                server.open().await,
                server.open().await,
                server.open().await,
            ],
            gate,
            holder: server.stranger().await,
            watcher: server.stranger().await,
            server,
        }
    }

    async fn commit(&self, store: usize, commit: Commit) -> Position {
        let receipt = self.stores[store].commit_one(commit).await;
        position_of(&receipt.expect("committed"))
    }

    async fn close_gate(&self) {
        let close = "BEGIN; SELECT FROM plimsoll.gate WHERE n = 2 FOR UPDATE";
        self.server.run(&self.gate, close).await;
    }

    async fn open_gate(&self) {
        self.gate.batch_execute("ROLLBACK").await.expect("open");
    }

    /// Whether a reader who was told this, and goes on behind it, is told everything.
    async fn all_is_told(&self, start: Position, told: (Vec<Position>, Position)) -> bool {
        let (mut told, next) = told;
        told.extend(entries_after(&self.stores[2], next).await.0);
        told == entries_after(&self.stores[2], start).await.0
    }

    /// Whether a reader is told everything while a writer stands at the gate and another one passes.
    async fn writer_stops(&self) -> bool {
        let start = self.commit(0, self.server.put("start")).await;
        self.close_gate().await;
        let rest = async {
            until_waited_for(&self.watcher, &self.gate).await;
            self.commit(1, self.server.put("second")).await;
            let told = entries_after(&self.stores[2], start).await;
            self.open_gate().await;
            told
        };
        let first = self.commit(0, self.server.put("first"));
        let (_, told) = join(first, rest).await;
        self.all_is_told(start, told).await
    }

    /// Whether a reader who stands at the gate is told everything, while one writer comes as far as
    /// its position and another one passes. The first comes before the reader, or after.
    async fn reader_stops(&self, before: bool) -> bool {
        let start = self.commit(0, self.server.put("start")).await;
        let first = self.server.put("first");
        hold_up(&self.server, &self.holder, first.id.expect("an id")).await;
        let (stands, is_there) = tokio::sync::oneshot::channel();
        let writers = async {
            if !before {
                is_there.await.expect("a reader");
            }
            self.commit(0, first).await;
        };
        let reader = async {
            if before {
                until_waited_for(&self.watcher, &self.holder).await;
            }
            self.close_gate().await;
            let rest = async {
                until_waited_for(&self.watcher, &self.gate).await;
                stands.send(()).ok();
                until_waited_for(&self.watcher, &self.holder).await;
                self.commit(1, self.server.put("second")).await;
                self.open_gate().await;
            };
            let (told, ()) = join(entries_after(&self.stores[2], start), rest).await;
            self.holder.batch_execute("ROLLBACK").await.expect("ended");
            told
        };
        let ((), told) = join(writers, reader).await;
        self.all_is_told(start, told).await
    }

    /// In which places of a function everything is told.
    async fn writers_told(&self, append: String) -> Vec<bool> {
        let mut told = Vec::new();
        for text in gated(&append) {
            self.server.run(&self.watcher, &text).await;
            told.push(self.writer_stops().await);
        }
        told
    }

    /// Likewise, for a reader who comes after a writer and for one who comes before it.
    async fn readers_told(&self, horizon: String) -> Vec<[bool; 2]> {
        let mut told = Vec::new();
        for text in gated(&horizon) {
            self.server.run(&self.watcher, &text).await;
            told.push([
                self.reader_stops(true).await,
                self.reader_stops(false).await,
            ]);
        }
        told
    }
}

#[tokio::test]
async fn wherever_a_writer_stops_readers_miss_nothing() {
    let meeting = Meeting::new().await;
    let append = meeting.server.function("append").await;
    assert_eq!(meeting.writers_told(append).await, [true; 5]);
    meeting.server.drop().await;
}

#[tokio::test]
async fn wherever_a_reader_stops_it_misses_nothing() {
    let meeting = Meeting::new().await;
    let horizon = meeting.server.function("horizon").await;
    assert_eq!(meeting.readers_told(horizon).await, [[true; 2]; 4]);
    meeting.server.drop().await;
}

#[tokio::test]
async fn wherever_a_writer_stops_a_reader_that_does_not_look_at_locks_is_found_out() {
    let meeting = Meeting::new().await;
    let blind = |text: String| text.replace("coalesce(behind, 0)", "0");
    meeting.server.change("horizon", blind).await;
    let append = meeting.server.function("append").await;
    // From when it has a position.
    let told = [true, true, true, false, false];
    assert_eq!(meeting.writers_told(append).await, told);
    meeting.server.drop().await;
}

#[tokio::test]
async fn a_position_that_is_taken_before_it_is_announced_is_found_out() {
    let meeting = Meeting::new().await;
    let text = meeting.server.function("append").await;
    let taking = "    taken := nextval('";
    let (head, tail) = text.split_once(taking).expect("taking");
    let (name, tail) = tail.split_once(";\n").expect("an end");
    let announcing = "    PERFORM pg_advisory";
    let (first, last) = head.split_once(announcing).expect("announcing");
    let early = format!("{first}{taking}{name};\n{announcing}{last}{tail}");
    // Between the two, and nowhere else.
    let told = [true, true, false, true, true];
    assert_eq!(meeting.writers_told(early).await, told);
    meeting.server.drop().await;
}

#[tokio::test]
async fn a_reader_that_looks_at_locks_first_is_found_out() {
    let meeting = Meeting::new().await;
    let text = meeting.server.function("horizon").await;
    let (head, body) = text.split_once("BEGIN\n").expect("a body");
    let newest = body.lines().next().expect("a line");
    let last = "    upto :=";
    let body = body.replace(last, &format!("{newest}\n{last}"));
    let late = format!("{head}BEGIN\n{body}");
    // What announced itself after it read the newest first is ahead of that, and seen by nobody.
    let (all, missed) = ([true; 2], [true, false]);
    let told = [all, missed, missed, all, all];
    assert_eq!(meeting.readers_told(late).await, told);
    meeting.server.drop().await;
}
