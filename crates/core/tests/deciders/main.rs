//! Every decider over the whole product of what it is given.
//!
//! The expected outcomes are written down as tables: a change of any cell breaks a test that
//! names it. Beyond the tables, random histories are compared with invariants and naive models.

// Fixtures outside of `#[test]` functions may fail the test too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod commits;
mod diagram;
mod groups;
mod lifecycles;
mod records;
mod submits;
mod tasks;

use std::sync::LazyLock;
use std::time::Duration;

use plimsoll_core::decide::Moment;
use plimsoll_core::task::WorkerId;
use plimsoll_core::{Incarnation, Limits, Name, Revision, Timestamp};

static LIMITS: LazyLock<Limits> = LazyLock::new(Limits::default);

fn at(seconds: u64) -> Timestamp {
    Timestamp::MIN.saturating_plus(secs(seconds))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// This moment, at the revision that every written row must then have.
fn moment(now: Timestamp) -> Moment<'static> {
    moment_at(now, 500)
}

fn moment_at(now: Timestamp, revision: u64) -> Moment<'static> {
    Moment {
        now,
        revision: Revision::new(revision),
        limits: &LIMITS,
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A worker of this name, with an incarnation that no other name has.
fn worker(text: &str) -> WorkerId {
    let bits = (text.bytes()).fold(0, |bits, byte| bits << 8 | u128::from(byte));
    WorkerId {
        name: name(text),
        incarnation: Incarnation::from_u128(bits),
    }
}

/// Reads a table of words: the first line names the columns, the first word of a line its row.
fn cells(table: &'static str) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut lines = table.lines().filter(|line| !line.trim().is_empty());
    let columns: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let mut cells = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.len(), columns.len() + 1, "cells in the line {line:?}");
        let found = columns.iter().zip(&words[1..]);
        cells.extend(found.map(|(column, cell)| (words[0], *column, *cell)));
    }
    cells
}

/// Asserts that a table has each cell of the product exactly once.
fn assert_whole(table: &'static str, rows: &[&str], columns: &[&str]) {
    let mut found: Vec<(&str, &str)> = (cells(table).iter())
        .map(|(row, column, _)| (*row, *column))
        .collect();
    found.sort_unstable();
    let mut product: Vec<(&str, &str)> = (rows.iter())
        .flat_map(|row| columns.iter().map(move |column| (*row, *column)))
        .collect();
    product.sort_unstable();
    assert_eq!(found, product);
}
