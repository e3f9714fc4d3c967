//! Lifecycles: the stages that an attempt was let into are a path of its lifecycle.

use std::collections::BTreeMap;

use plimsoll_core::lifecycle::Phase;
use plimsoll_core::store::{Commit, Ending, Receipt, Write};
use plimsoll_core::{Name, Result};

use super::{Attempt, Checker};

/// The stage that each attempt is in.
pub(super) type Stages = BTreeMap<Attempt, Name>;

/// A move that a commit asks for.
#[derive(Debug)]
pub(crate) struct Move {
    /// Which commit.
    place: usize,
    attempt: Attempt,
    to: Phase,
}

/// The moves that these commits ask for, as their senders mean them.
pub(crate) fn moves(commits: &[Commit]) -> Vec<Move> {
    let mut moves = Vec::new();
    for (place, commit) in commits.iter().enumerate() {
        for write in &commit.writes {
            let (holder, to) = match write {
                Write::Amend(amend) => (&amend.holder, amend.stage.clone().map(Phase::Stage)),
                Write::Settle(settle) => {
                    let completes = matches!(settle.how, Ending::Complete { .. });
                    (&settle.holder, completes.then_some(Phase::Completed))
                }
                _ => continue,
            };
            let attempt = (holder.task, holder.fence);
            moves.extend(to.map(|to| Move { place, attempt, to }));
        }
    }
    moves
}

impl Checker {
    /// The store has answered moves, in this order. What it let through must be allowed.
    pub(crate) fn moved(&mut self, moves: Vec<Move>, results: &[Result<Receipt>]) {
        for Move { place, attempt, to } in moves {
            let accepted = match results.get(place) {
                Some(Ok(receipt)) => !receipt.repeated,
                Some(Err(error)) => {
                    self.figures.moves_refused += u64::from(error.code() == "move_not_allowed");
                    false
                }
                None => false,
            };
            let task = self.rows(vec![attempt.0]).into_iter().next().flatten();
            let lifecycle = task.and_then(|task| task.spec.lifecycle.clone());
            let Some(lifecycle) = lifecycle.filter(|_| accepted) else {
                continue;
            };
            let stage = self.stages.get(&attempt).unwrap_or(lifecycle.first());
            let from = Phase::Stage(stage.clone());
            // What is settled, or in a stage, may be told so again.
            let again =
                from == to || (to == Phase::Completed && self.endings.contains_key(&attempt));
            if !again && !lifecycle.allows(&from, &to) {
                let name = self.name(attempt.0);
                self.blame("stages", format!("{name}#{}: {from} to {to}", attempt.1));
            }
            if let Phase::Stage(stage) = to {
                self.stages.insert(attempt, stage);
            }
        }
    }
}
