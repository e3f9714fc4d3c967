//! What a transaction is going to write, and its end.

use std::collections::BTreeMap;

use plimsoll_core::change::Change;
use plimsoll_core::error::Applied;
use plimsoll_core::store::{Commit, Receipt};
use plimsoll_core::wake::Wake;
use plimsoll_core::{Position, Result, Timestamp};
use tokio_postgres::types::Type;

use super::Failed;
use super::attempt::{Decided, HURRY};
use crate::apply::{Apply, Counts};
use crate::call::{COMMIT, Call, Sql, params};
use crate::codec::{At, Id, column, encode, unsigned};
use crate::error::{Answer, Fault};
use crate::held::Written;
use crate::notice::{News, earlier};
use crate::session::Session;

/// Appends to the history. Answers the position, and the first of some revisions for the next
/// transaction.
static APPEND: Sql = Sql {
    text: "SELECT plimsoll.append($1, $2, $3), nextval('plimsoll.revisions')",
    types: &[Type::INT4, Type::TIMESTAMPTZ, Type::BYTEA],
};

/// Receipts, with the position that this transaction has taken.
static REMEMBER: Sql = Sql {
    text: "INSERT INTO plimsoll.commits SELECT $1, u.id, $2, \
           CASE WHEN u.told THEN currval('plimsoll.positions') END, u.receipt \
           FROM unnest($3, $4, $5) u(id, told, receipt)",
    types: &[
        Type::INT4,
        Type::TIMESTAMPTZ,
        Type::UUID_ARRAY,
        Type::BOOL_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

/// A receipt that has no position yet.
pub(super) struct Draft {
    receipt: Receipt,
    told: bool,
}

impl Draft {
    pub(super) fn with(self, position: Option<Position>) -> Receipt {
        match self.told {
            true => Receipt {
                position,
                ..self.receipt
            },
            false => self.receipt,
        }
    }
}

/// What a transaction is going to write.
pub(super) struct Writing {
    ns: i32,
    /// Whether many rows may be copied.
    copies: bool,
    pub(super) apply: Apply,
    pub(super) changes: Vec<Change>,
    counts: Counts,
    /// Commits that repeat others of the same call.
    pub(super) repeats: Vec<(usize, usize)>,
    /// Receipts to be remembered: whether there is history, and the body. In the order of their ids,
    /// so that two transactions with the same ones do not wait for each other.
    remember: BTreeMap<Id, (bool, Vec<u8>)>,
    logs: bool,
    pub(super) tasks: Vec<Written>,
    /// Since when tasks wait that others have had before.
    back_to: Option<Timestamp>,
}

impl Writing {
    pub(super) fn new(ns: i32, copies: bool) -> Self {
        Self {
            ns,
            copies,
            apply: Apply::new(ns),
            changes: Vec::new(),
            counts: Counts::default(),
            repeats: Vec::new(),
            remember: BTreeMap::new(),
            logs: false,
            tasks: Vec::new(),
            back_to: None,
        }
    }

    /// Takes in what commits came to.
    pub(super) fn commits(
        &mut self,
        decided: Decided,
        commits: &[Commit],
    ) -> Answer<Vec<Result<Draft>>> {
        let mut drafts = Vec::with_capacity(commits.len());
        let mut lines = Vec::new();
        for (place, (applied, commit)) in decided.applied.into_iter().zip(commits).enumerate() {
            let applied = match applied {
                Ok(applied) => applied,
                Err(error) => {
                    drafts.push(Err(error));
                    continue;
                }
            };
            self.repeats
                .extend(applied.repeats.map(|first| (place, first)));
            let told = !applied.changes.is_empty();
            if let (Some(id), false) = (commit.id, applied.receipt.repeated) {
                let receipt = (told, encode(&applied.receipt)?);
                self.remember.insert(Id(id.as_u128()), receipt);
            }
            self.changes.extend(applied.changes);
            lines.extend(applied.lines);
            drafts.push(Ok(Draft {
                receipt: applied.receipt,
                told,
            }));
        }
        self.logs = !lines.is_empty();
        let rowless = decided.loaded.rowless.into_iter();
        self.apply
            .rowless(rowless.map(|(task, claim)| (task, Some(claim))));
        self.apply.rows(decided.loaded.rows, &decided.indexes)?;
        self.apply.lines(&lines)?;
        Ok(drafts)
    }

    /// The statements for what was taken in since the last time.
    pub(super) fn flush(&mut self) -> Answer<Vec<Call>> {
        let mut apply = std::mem::replace(&mut self.apply, Apply::new(self.ns));
        self.tasks.append(&mut apply.written);
        self.back_to = earlier(self.back_to, apply.back_to);
        self.counts.absorb(std::mem::take(&mut apply.counts));
        apply.calls(self.copies)
    }

    pub(super) fn news(&self) -> News {
        let mut wake = Wake::of(&self.changes);
        wake.logs = self.logs;
        News {
            wake,
            changes: self.changes.len(),
            back_to: self.back_to,
        }
    }

    /// Writes everything, commits, and then tells others. Answers the position of the entry, if there
    /// is one, and whether others were told.
    pub(super) async fn finish(
        &mut self,
        session: &mut Session,
        mut calls: Vec<Call>,
        now: Timestamp,
        notice: Option<Call>,
    ) -> Result<(Option<Position>, bool), Failed> {
        let untouched = |fault| (fault, Applied::No);
        let counts = std::mem::take(&mut self.counts);
        let mut appended = None;
        calls.extend(counts.call(self.ns));
        if !self.changes.is_empty() {
            let entry = encode(&self.changes).map_err(untouched)?;
            appended = Some(calls.len());
            calls.push(Call::last(&APPEND, params![self.ns, At(now), entry]));
        }
        if !self.remember.is_empty() {
            let (ids, receipts): (Vec<Id>, Vec<_>) =
                std::mem::take(&mut self.remember).into_iter().unzip();
            let (told, receipts): (Vec<bool>, Vec<Vec<u8>>) = receipts.into_iter().unzip();
            calls.push(Call::new(
                &REMEMBER,
                params![self.ns, At(now), ids, told, receipts],
            ));
        }
        // Nothing was read or locked, and there is nothing to write.
        let idle = calls.iter().all(|call| call.begins() || call.is(&HURRY));
        if idle && !session.is_open() {
            return Ok((None, false));
        }
        calls.push((&COMMIT).into());
        let tells = notice.is_some();
        calls.extend(notice);
        let answers = session.commit(&calls).await?;
        // What failed after the commit has no rows.
        let told = tells && answers.last().is_some_and(|rows| !rows.is_empty());
        let Some(place) = appended else {
            return Ok((None, told));
        };
        let unknown = |fault| (fault, Applied::Unknown);
        let row = answers.get(place).and_then(|rows| rows.first());
        let row = row.ok_or_else(|| unknown(Fault::Corrupt("no position".into())))?;
        // What other parts of the statement have to say comes before.
        let number = |from_end| {
            let place = row.len().saturating_sub(from_end);
            column(row, place).and_then(unsigned).map_err(unknown)
        };
        session.keep_revisions(number(1)?);
        Ok((Some(Position::new(number(2)?)), told))
    }
}
