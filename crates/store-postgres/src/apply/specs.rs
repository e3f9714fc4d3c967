//! Rows of what never changes of a task.

use std::sync::Arc;

use plimsoll_core::task::{Task, TaskSpec};
use tokio_postgres::types::Type;

use super::copy::{MANY, Rows, Table, none, table};
use crate::call::{Call, Part, Sql, params, part};
use crate::codec::{At, Blob, Id, Json, LaneNumbers, lane_number, rare, same, signed};
use crate::error::Answer;
use crate::statement::sql_file;
use crate::task_row::{SpecMore, USUAL_ATTEMPTS};

static INSERT_SPECS: Part = part!(
    sql_file!("apply/insert_specs"),
    &[
        Type::INT4,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::JSONB_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
    ]
);

/// Of one lane and time, and with nothing that few have. Each column costs time on both sides, also if it is empty.
static INSERT_USUAL_SPECS: Part = part!(
    "INSERT INTO plimsoll.specs (ns, id, lane, born, created_at, queue, kind, payload) \
           SELECT $1, id, $2, born, $3, $4, $5, payload FROM unnest($6, $7, $8) u(id, born, payload)",
    &[
        Type::INT4,
        Type::INT8,
        Type::TIMESTAMPTZ,
        Type::TEXT,
        Type::TEXT,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::BYTEA_ARRAY,
    ]
);

static COPY_SPECS: Table = table!(
    "specs",
    "ns, id, lane, born, created_at, queue, kind, payload" [
        INT4, UUID, INT8, INT8, TIMESTAMPTZ, TEXT, TEXT, BYTEA
    ],
    "group_born, attempt_timeout_us, max_attempts, key, \"group\", owner, labels, trace, more" [
        INT8, INT8, INT4, TEXT, TEXT, TEXT, JSONB, TEXT, BYTEA
    ]
);

pub(crate) static DELETE_SPECS: Sql = Sql {
    text: "DELETE FROM plimsoll.specs WHERE ns = $1 AND id = ANY($2)",
    types: &[Type::INT4, Type::UUID_ARRAY],
};

/// What is not written as it is.
struct Row<'t> {
    spec: &'t TaskSpec,
    born: i64,
    group_born: Option<i64>,
    timeout: Option<i64>,
    max_attempts: Option<i32>,
    key: Option<&'t str>,
    group: Option<&'t str>,
    owner: Option<&'t str>,
    labels: Option<Json>,
    more: Option<Vec<u8>>,
}

impl<'t> Row<'t> {
    fn of(spec: &'t TaskSpec) -> Answer<Self> {
        let micros = |limit: std::time::Duration| i64::try_from(limit.as_micros());
        let labels = (!spec.labels.is_empty()).then(|| Json::of(&spec.labels));
        let attempts = i32::try_from(spec.retry.max_attempts).unwrap_or(i32::MAX);
        Ok(Self {
            spec,
            born: signed(spec.born.get()),
            group_born: spec.group_born.map(|born| signed(born.get())),
            timeout: (spec.attempt_timeout).map(|limit| micros(limit).unwrap_or(i64::MAX)),
            max_attempts: (attempts != USUAL_ATTEMPTS).then_some(attempts),
            key: spec.key.as_ref().map(|(key, _)| key.as_str()),
            group: spec.group.as_ref().map(|group| group.as_str()),
            owner: spec.owner.as_ref().map(|owner| owner.as_str()),
            labels: labels.transpose()?,
            more: SpecMore::stored(spec)?,
        })
    }

    /// Whether it has nothing that few have.
    fn is_usual(&self) -> bool {
        let numbers = [
            self.group_born,
            self.timeout,
            self.max_attempts.map(i64::from),
        ];
        let texts = [self.key, self.group, self.owner, self.spec.trace.as_deref()];
        none(&numbers) && none(&texts) && self.labels.is_none() && self.more.is_none()
    }
}

pub(super) fn insert_specs(ns: i32, tasks: &[Arc<Task>], copies: bool) -> Answer<Call> {
    let rows = tasks.iter().map(|task| Row::of(&task.spec));
    let rows = rows.collect::<Answer<Vec<_>>>()?;
    match copies && rows.len() >= MANY {
        true => copy(ns, &rows),
        false => Ok(insert(ns, &rows)),
    }
}

fn copy(ns: i32, rows: &[Row<'_>]) -> Answer<Call> {
    let mut copied = Rows::new(&COPY_SPECS, rows.iter().all(Row::is_usual), rows.len());
    let mut numbers = LaneNumbers::default();
    for row in rows {
        let lane = &row.spec.lane;
        copied.push([
            &ns,
            &Id::from(row.spec.id),
            &numbers.of(ns, lane),
            &row.born,
            &At(row.spec.created_at),
            &lane.queue.as_str(),
            &lane.kind.as_str(),
            &row.spec.payload.as_ref(),
            &row.group_born,
            &row.timeout,
            &row.max_attempts,
            &row.key,
            &row.group,
            &row.owner,
            &row.labels,
            &row.spec.trace,
            &row.more,
        ])?;
    }
    Ok(copied.call())
}

fn insert(ns: i32, rows: &[Row<'_>]) -> Call {
    let ids: Vec<_> = rows.iter().map(|row| Id::from(row.spec.id)).collect();
    let born: Vec<_> = rows.iter().map(|row| row.born).collect();
    let payloads: Vec<_> = rows
        .iter()
        .map(|row| Blob(row.spec.payload.clone()))
        .collect();
    let alike = |first: &Row<'_>, row: &Row<'_>| {
        let (first, spec) = (first.spec, row.spec);
        row.is_usual() && spec.lane == first.lane && spec.created_at == first.created_at
    };
    let first = rows.first();
    if let Some(first) = first.filter(|first| rows.iter().all(|row| alike(first, row))) {
        let lane = &first.spec.lane;
        let number = lane_number(ns, lane);
        let created_at = At(first.spec.created_at);
        let (queue, kind) = (lane.queue.to_string(), lane.kind.to_string());
        return Call::part(
            &INSERT_USUAL_SPECS,
            params![ns, number, created_at, queue, kind, ids, born, payloads],
        );
    }
    let lanes = same(rows.iter().map(|row| &row.spec.lane));
    let numbers: Vec<_> = lanes.iter().map(|lane| lane_number(ns, lane)).collect();
    let queues: Vec<_> = lanes.iter().map(|lane| lane.queue.to_string()).collect();
    let kinds: Vec<_> = lanes.iter().map(|lane| lane.kind.to_string()).collect();
    let texts = |of: fn(&Row<'_>) -> Option<String>| rare(rows.iter().map(of).collect());
    Call::part(
        &INSERT_SPECS,
        params![
            ns,
            ids,
            numbers,
            born,
            same(rows.iter().map(|row| At(row.spec.created_at))),
            rare(rows.iter().map(|row| row.group_born).collect()),
            rare(rows.iter().map(|row| row.timeout).collect()),
            rare(rows.iter().map(|row| row.max_attempts).collect()),
            queues,
            kinds,
            payloads,
            texts(|row| row.key.map(str::to_owned)),
            texts(|row| row.group.map(str::to_owned)),
            texts(|row| row.owner.map(str::to_owned)),
            rare(rows.iter().map(|row| row.labels.clone()).collect()),
            texts(|row| row.spec.trace.clone()),
            rare(rows.iter().map(|row| row.more.clone()).collect())
        ],
    )
}
