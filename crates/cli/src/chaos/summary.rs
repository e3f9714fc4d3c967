//! What a run came to.

use std::fmt::Write;

use serde::Serialize;

use super::job::Audit;
use super::ledger::Ledger;
use crate::demo::Books;
use crate::table::grouped;

/// How often what was done, by role: workers, holders, watchdogs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Deeds {
    pub(super) workers_killed: u64,
    pub(super) workers_frozen: u64,
    pub(super) workers_drained: u64,
    pub(super) commands_killed: u64,
    pub(super) holders_killed: u64,
    pub(super) holders_frozen: u64,
    pub(super) watchdogs_killed: u64,
    pub(super) watchdogs_frozen: u64,
}

impl Deeds {
    pub(super) fn killed(&self) -> u64 {
        self.workers_killed + self.holders_killed + self.watchdogs_killed
    }

    pub(super) fn frozen(&self) -> u64 {
        self.workers_frozen + self.holders_frozen + self.watchdogs_frozen
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Summary {
    pub(super) seed: u64,
    pub(super) seconds: f64,
    #[serde(flatten)]
    pub(super) deeds: Deeds,
    pub(super) tasks: u64,
    pub(super) attempts: u64,
    pub(super) lease_expiries: u64,
    /// Processes of workers that were killed, or woke up without their tasks.
    pub(super) processes_to_end: u64,
    pub(super) turns: u64,
    pub(super) waited_ms_max: u64,
    pub(super) locks_lost: u64,
    pub(super) writes_accepted: u64,
    pub(super) writes_refused: u64,
    /// What must not be, in words.
    pub(super) faults: Vec<String>,
}

impl Summary {
    /// Notes that something must not be, if there is any of it.
    pub(super) fn fault(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.faults.push(format!("{} {what}", grouped(count)));
        }
    }

    pub(super) fn tasks(&mut self, books: &Books, audit: &Audit) {
        self.attempts = audit.attempts;
        self.lease_expiries = books.expired;
        self.fault(audit.stranded, "tasks stranded");
        self.fault(audit.miscounted, "tasks not completed exactly once");
        self.fault(audit.by_others, "tasks completed by who had lost them");
        self.fault(audit.violations, "invariants broken");
        self.fault(books.stale(), "zombie answers accepted");
    }

    pub(super) fn locks(&mut self, ledger: &Ledger) {
        self.turns = ledger.turns.values().sum();
        self.waited_ms_max = ledger.waited_ms_max;
        self.locks_lost = ledger.lost;
        self.writes_accepted = ledger.accepted;
        self.writes_refused = ledger.refused;
        self.fault(ledger.late, "writes accepted after a higher token");
        self.fault(ledger.shared, "tokens of two holders");
        self.fault(ledger.deceived, "holders told that they had a lost lock");
    }

    /// For people, in 80 columns.
    pub(super) fn show(&self) -> String {
        let mut text = String::from("\n");
        let deeds = &self.deeds;
        let lines = [
            ("workers killed", deeds.workers_killed),
            ("workers frozen", deeds.workers_frozen),
            ("workers drained", deeds.workers_drained),
            ("commands killed", deeds.commands_killed),
            ("holders killed", deeds.holders_killed),
            ("holders frozen", deeds.holders_frozen),
            ("watchdogs killed", deeds.watchdogs_killed),
            ("watchdogs frozen", deeds.watchdogs_frozen),
            ("tasks completed", self.tasks),
            ("attempts", self.attempts),
            ("leases run out", self.lease_expiries),
            ("processes to end", self.processes_to_end),
            ("turns with a lock", self.turns),
            ("longest wait, in ms", self.waited_ms_max),
            ("locks lost", self.locks_lost),
            ("writes accepted", self.writes_accepted),
            ("zombie writes refused", self.writes_refused),
        ];
        // Writing to a string cannot fail.
        for (what, count) in lines {
            writeln!(text, "  {what:22} {:>9}", grouped(count)).ok();
        }
        for fault in &self.faults {
            writeln!(text, "  must not be: {fault}").ok();
        }
        writeln!(text, "\n{:.1} s, seed {}", self.seconds, self.seed).ok();
        text
    }
}
