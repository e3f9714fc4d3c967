//! What a run came to.

use std::fmt::Write;

use serde::Serialize;

use super::Troubles;
use super::books::Audit;
use super::fleet::Fleet;
use crate::table::grouped;

/// What a run came to: everything from the books, except what was refused, which is in none.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    workers: usize,
    killed: u64,
    frozen: u64,
    submitted: u64,
    follow_ups: u64,
    completed: u64,
    attempts: u64,
    retried: u64,
    lease_expiries: u64,
    zombie_writes_refused: u64,
    zombie_writes_accepted: u64,
    lost: u64,
    done_twice: u64,
    fences_fallen: u64,
    leases_left: u64,
    miscounted: u64,
    #[serde(flatten)]
    troubles: Troubles,
    seconds: f64,
    tasks_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip)]
    expired_of: String,
}

impl Summary {
    pub(super) fn new(
        audit: &Audit,
        fleet: &Fleet,
        troubles: Troubles,
        tasks: u64,
        seed: Option<u64>,
    ) -> Self {
        let of = (audit.expired_of.iter())
            .map(|(name, count)| format!("{count} of {}", name.replace('-', " ")));
        Self {
            workers: fleet.members.len(),
            killed: fleet.kills,
            frozen: fleet.freezes,
            submitted: audit.submitted,
            follow_ups: audit.submitted.saturating_sub(tasks),
            completed: audit.completed,
            attempts: audit.attempts,
            retried: audit.retried,
            lease_expiries: audit.expired,
            zombie_writes_refused: fleet.refused(),
            zombie_writes_accepted: audit.stale,
            lost: audit.lost,
            done_twice: audit.done_twice,
            fences_fallen: audit.fences_fallen,
            leases_left: audit.leases_left,
            miscounted: audit.miscounted,
            troubles,
            seconds: audit.seconds,
            tasks_per_second: audit.completed as f64 / audit.seconds.max(0.001),
            seed,
            expired_of: of.collect::<Vec<_>>().join(", "),
        }
    }

    /// Whether nothing was lost, done twice, or written by who had no right to.
    pub(super) fn is_good(&self) -> bool {
        let wrong = [
            self.lost,
            self.done_twice,
            self.zombie_writes_accepted,
            self.fences_fallen,
            self.leases_left,
            self.miscounted,
        ];
        wrong == [0; 6]
    }

    /// For people, in 80 columns.
    pub(super) fn show(&self) -> String {
        let mut text = String::from("\nFrom the books:\n");
        let mut line = |what: &str, count: u64, words: &str| {
            let line = format!("  {what:22} {:>9}  {words}", grouped(count));
            // Writing to a string cannot fail.
            writeln!(text, "{}", line.trim_end()).ok();
        };
        let follow_ups = format!(
            "{} of them by tasks, as they completed",
            grouped(self.follow_ups)
        );
        line("submitted", self.submitted, &follow_ups);
        line("completed", self.completed, "");
        line("failed and retried", self.retried, "");
        let of = match self.expired_of.len() {
            0..=44 => self.expired_of.as_str(),
            _ => "",
        };
        line("leases run out", self.lease_expiries, of);
        line(
            "zombie writes refused",
            self.zombie_writes_refused,
            "by the store, as the workers report",
        );
        let troubles = &self.troubles;
        let unusual = [
            ("zombie writes accepted", self.zombie_writes_accepted),
            ("fences that fell", self.fences_fallen),
            ("leases of done tasks", self.leases_left),
            ("counted wrong", self.miscounted),
            ("server killed", troubles.server_killed),
            ("backends killed", troubles.backends_killed),
            ("connections cut", troubles.cut),
            ("cut within answers", troubles.cut_in_answers),
            ("network stalled", troubles.stalled),
            ("left half open", troubles.half_open),
            ("submits repeated", troubles.submits_repeated),
        ];
        for (what, count) in unusual.into_iter().filter(|(_, count)| *count > 0) {
            line(what, count, "");
        }
        line("lost", self.lost, "");
        line("done twice", self.done_twice, "");
        let rate = grouped(self.tasks_per_second.round() as u64);
        let seconds = self.seconds;
        writeln!(text, "\n{seconds:.1} s, {rate} tasks a second").ok();
        text
    }
}
