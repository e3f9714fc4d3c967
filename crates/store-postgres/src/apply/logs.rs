//! Lines of logs.

use std::collections::BTreeSet;

use plimsoll_core::log::Line;
use plimsoll_core::{LineId, TaskId};
use tokio_postgres::types::Type;

use super::Apply;
use crate::call::{Call, Sql, params};
use crate::codec::{At, Blob, Id, Json, signed};
use crate::error::Answer;
use crate::statement::sql_file;

/// How many lines of logs go with their tasks in one transaction: others wait for it.
const LINES_REMOVED_MAX: i64 = 10_000;

pub(crate) static DELETE_LOGS: Sql = Sql {
    text: "DELETE FROM plimsoll.logs WHERE (ns, task, seq) IN \
           (SELECT ns, task, seq FROM plimsoll.logs WHERE ns = $1 AND task = ANY($2) LIMIT $3)",
    types: &[Type::INT4, Type::UUID_ARRAY, Type::INT8],
};

static ORPHAN_LOGS: Sql = Sql {
    text: "INSERT INTO plimsoll.orphans SELECT ns, task, max(seq) FROM plimsoll.logs \
           WHERE ns = $1 AND task = ANY($2) GROUP BY ns, task \
           ON CONFLICT (ns, task) DO UPDATE SET upto = excluded.upto",
    types: &[Type::INT4, Type::UUID_ARRAY],
};

static APPEND_LINES: Sql = Sql {
    text: sql_file!("apply/append_lines"),
    types: &[
        Type::INT4,
        Type::UUID_ARRAY,
        Type::UUID_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::JSONB_ARRAY,
    ],
};

impl Apply {
    /// Takes in lines of logs. Of several with the same id, the first one counts.
    pub(crate) fn lines(&mut self, lines: &[(TaskId, Line)]) -> Answer<()> {
        let mut seen: BTreeSet<(TaskId, LineId)> = BTreeSet::new();
        let lines: Vec<_> = (lines.iter())
            .filter(|(task, line)| seen.insert((*task, line.line.id)))
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        let of =
            |get: fn(&Line) -> i64| lines.iter().map(|(_, line)| get(line)).collect::<Vec<_>>();
        let tasks: Vec<_> = lines.iter().map(|(task, _)| Id::from(*task)).collect();
        let ids: Vec<_> = lines
            .iter()
            .map(|(_, line)| Id(line.line.id.as_u128()))
            .collect();
        let levels: Vec<_> = lines
            .iter()
            .map(|(_, line)| line.line.level as i16)
            .collect();
        let at: Vec<_> = lines.iter().map(|(_, line)| At(line.at)).collect();
        let stages: Vec<_> = (lines.iter())
            .map(|(_, line)| line.line.stage.as_ref().map(ToString::to_string))
            .collect();
        let messages: Vec<_> = lines
            .iter()
            .map(|(_, line)| line.line.message.clone())
            .collect();
        let metadata: Vec<_> = (lines.iter())
            .map(|(_, line)| line.line.metadata.clone().map(Blob))
            .collect();
        let steps = (lines.iter())
            .map(|(_, line)| line.line.step.as_ref().map(Json::of).transpose())
            .collect::<Answer<Vec<_>>>()?;
        let fences = of(|line| signed(line.fence.get()));
        self.others.push(Call::new(
            &APPEND_LINES,
            params![
                self.ns, tasks, ids, levels, fences, at, stages, messages, metadata, steps
            ],
        ));
        Ok(())
    }
}

/// Removes the logs of tasks, or as much of them as may go in this transaction.
pub(super) fn remove(ns: i32, tasks: Vec<Id>) -> [Call; 2] {
    let lines = params![ns, tasks.clone(), LINES_REMOVED_MAX];
    [
        Call::new(&DELETE_LOGS, lines),
        Call::new(&ORPHAN_LOGS, params![ns, tasks]),
    ]
}
