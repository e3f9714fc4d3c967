//! Looks below the floor of a lane, beside the claims that begin there.

use std::time::Duration;

use plimsoll_core::Timestamp;
use tokio_postgres::types::Type;

use super::lane::{Floor, PRIORITIES};
use crate::call::{Call, Sql, params};
use crate::codec::{At, column};
use crate::error::Answer;
use crate::session::Session;
use crate::statement::sql_file;

/// What there is below a floor.
#[derive(Clone, Debug)]
pub(crate) struct Below {
    /// For each priority, the moment of the first task.
    pub(crate) first: [Option<Timestamp>; PRIORITIES],
    /// How long the server took to look.
    pub(crate) took: Duration,
}

/// The moment of the first task of each priority that is before a floor and that nobody is taking, and when the look
/// began and ended.
pub(crate) static FIRST_BELOW: Sql = Sql {
    text: sql_file!("floors/first_below"),
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
