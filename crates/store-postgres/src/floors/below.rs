//! Looks below the floor of a lane, beside the claims that begin there.

use std::time::Duration;

use plimsoll_core::Timestamp;
use tokio_postgres::types::Type;

use super::lane::{Floor, PRIORITIES};
use crate::call::{Call, Sql, params};
use crate::codec::{At, column};
use crate::error::Answer;
use crate::session::Session;

/// What there is below a floor.
#[derive(Clone, Debug)]
pub(crate) struct Below {
    /// For each priority, the moment of the first task.
    pub(crate) first: [Option<Timestamp>; PRIORITIES],
    /// How long the server took to look.
    pub(crate) took: Duration,
}

/// The moment of the first task of each priority that is before a floor and that nobody is taking, and when the look
/// began and ended. Rows before the epoch cannot be read, and are left out.
pub(crate) static FIRST_BELOW: Sql = Sql {
    text: "SELECT ARRAY(SELECT (SELECT runnable_at FROM plimsoll.tasks WHERE lane = $1 AND status = 1 \
           AND priority = f.priority AND runnable_at < f.floor AND runnable_at >= 'epoch' \
           ORDER BY runnable_at LIMIT 1 FOR UPDATE SKIP LOCKED) \
           FROM unnest($2, $3) f(priority, floor) ORDER BY f.priority), \
           statement_timestamp(), clock_timestamp()",
    types: &[Type::INT8, Type::INT2_ARRAY, Type::TIMESTAMPTZ_ARRAY],
};

/// What there is below the floor of a lane.
pub(crate) async fn look(session: &mut Session, lane: i64, floor: &Floor) -> Answer<Below> {
    let (priorities, floors): (Vec<i16>, Vec<At>) = (0_i16..).zip(floor.map(At)).unzip();
    let call = Call::new(&FIRST_BELOW, params![lane, priorities, floors]);
    let found = session.run(&[call]).await?;
    let row = &found[0][0];
    let first: Vec<Option<At>> = column(row, 0)?;
    let (At(began), At(ended)) = (column(row, 1)?, column(row, 2)?);
    Ok(Below {
        first: std::array::from_fn(|priority| match first.get(priority) {
            Some(Some(At(moment))) => Some(*moment),
            Some(None) | None => None,
        }),
        took: ended.since(began),
    })
}
