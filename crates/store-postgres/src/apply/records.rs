//! Records, keys and groups.

use plimsoll_core::decide::Written;
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::{GroupId, IdempotencyKey, Key, TaskId};
use tokio_postgres::types::Type;

use super::Apply;
use crate::call::{Call, Param, Part, Sql, params, part};
use crate::codec::{At, Id, Json, encode, fields_to_json, signed};
use crate::error::Answer;
use crate::indexes::{Known, Moves};
use crate::statement::sql_file;

/// The types of a record, as in [`Records::params`], and of the revision that it had.
static RECORD: [Type; 7] = [
    Type::INT4,
    Type::TEXT_ARRAY,
    Type::JSONB_ARRAY,
    Type::INT8_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
    Type::INT8_ARRAY,
];

static INSERT_RECORDS: Sql = Sql {
    text: "INSERT INTO plimsoll.records SELECT $1, * FROM unnest($2, $3, $4, $5, $6)",
    types: RECORD.split_at(RECORD.len() - 1).0,
};

pub(crate) static UPDATE_RECORDS: Sql = Sql {
    text: sql_file!("apply/update_records"),
    types: &RECORD,
};

pub(crate) static DELETE_RECORDS: Sql = Sql {
    text: sql_file!("apply/delete_records"),
    types: &[Type::INT4, Type::TEXT_ARRAY, Type::INT8_ARRAY],
};

static INSERT_KEYS: Part = part!(
    "INSERT INTO plimsoll.keys SELECT $1, * FROM unnest($2, $3)",
    &[Type::INT4, Type::TEXT_ARRAY, Type::UUID_ARRAY]
);

pub(crate) static UPDATE_KEYS: Sql = Sql {
    text: sql_file!("apply/update_keys"),
    types: &[
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::UUID_ARRAY,
        Type::UUID_ARRAY,
    ],
};

pub(crate) static DELETE_KEYS: Sql = Sql {
    text: sql_file!("apply/delete_keys"),
    types: &[Type::INT4, Type::TEXT_ARRAY, Type::UUID_ARRAY],
};

/// The types of a group, as in [`Groups::call`].
static GROUP: [Type; 8] = [
    Type::INT4,
    Type::TEXT_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::BOOL_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
    Type::BYTEA_ARRAY,
];

static UPSERT_GROUPS: Sql = Sql {
    text: sql_file!("apply/upsert_groups"),
    types: &GROUP,
};

static INSERT_GROUPS: Sql = Sql {
    text: "INSERT INTO plimsoll.groups SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8)",
    types: &GROUP,
};

pub(crate) static DELETE_GROUPS: Sql = Sql {
    text: "DELETE FROM plimsoll.groups WHERE ns = $1 AND id = ANY($2)",
    types: &[Type::INT4, Type::TEXT_ARRAY],
};

impl Apply {
    pub(super) fn records(
        &mut self,
        written: impl Iterator<Item = Written<Key, Record>>,
        indexes: &[Known],
    ) -> Answer<()> {
        let (mut insert, mut update) = (Records::default(), Records::default());
        let (mut updated, mut gone, mut gone_at) = (Vec::new(), Vec::new(), Vec::new());
        let mut moves = Moves::default();
        for row in written {
            let (before, after) = (row.before.as_ref(), row.after.as_ref());
            moves.add(indexes, &row.key, before, after);
            match (before, after) {
                (None, None) => {}
                (None, Some(after)) => insert.push(after)?,
                (Some(before), Some(after)) => {
                    update.push(after)?;
                    updated.push(signed(before.revision.get()));
                }
                (Some(before), None) => {
                    gone.push(row.key.to_string());
                    gone_at.push(signed(before.revision.get()));
                }
            }
        }
        if !gone.is_empty() {
            let call = Call::new(&DELETE_RECORDS, params![self.ns, gone, gone_at]);
            self.others.push(call);
        }
        if !updated.is_empty() {
            let params = update.params(self.ns).into_iter().chain(params![updated]);
            self.others
                .push(Call::new(&UPDATE_RECORDS, params.collect()));
        }
        if !insert.keys.is_empty() {
            self.others
                .push(Call::new(&INSERT_RECORDS, insert.params(self.ns)));
        }
        self.others.extend(moves.calls());
        Ok(())
    }

    pub(super) fn keys(&mut self, written: impl Iterator<Item = Written<IdempotencyKey, TaskId>>) {
        let (mut update, mut delete) = (
            (Vec::new(), Vec::new(), Vec::new()),
            (Vec::new(), Vec::new()),
        );
        for row in written {
            let key = row.key.to_string();
            match (row.before.map(Id::from), row.after.map(Id::from)) {
                (None, None) => {}
                (None, Some(after)) => {
                    self.new_keys.0.push(key);
                    self.new_keys.1.push(after);
                }
                (Some(before), Some(after)) => {
                    update.0.push(key);
                    update.1.push(after);
                    update.2.push(before);
                }
                (Some(before), None) => {
                    delete.0.push(key);
                    delete.1.push(before);
                }
            }
        }
        let ns = self.ns;
        if !delete.0.is_empty() {
            self.others
                .push(Call::new(&DELETE_KEYS, params![ns, delete.0, delete.1]));
        }
        if !update.0.is_empty() {
            let params = params![ns, update.0, update.1, update.2];
            self.others.push(Call::new(&UPDATE_KEYS, params));
        }
    }

    pub(super) fn groups(
        &mut self,
        written: impl Iterator<Item = Written<GroupId, Group>>,
    ) -> Answer<()> {
        let (mut new, mut changed, mut gone) = (Groups::default(), Groups::default(), Vec::new());
        for row in written {
            match (&row.before, &row.after) {
                (_, None) => gone.push(row.key.to_string()),
                (None, Some(group)) => new.push(group)?,
                (Some(_), Some(group)) => changed.push(group)?,
            }
        }
        if !gone.is_empty() {
            self.others
                .push(Call::new(&DELETE_GROUPS, params![self.ns, gone]));
        }
        self.others.extend(new.call(&INSERT_GROUPS, self.ns));
        self.others.extend(changed.call(&UPSERT_GROUPS, self.ns));
        Ok(())
    }
}

/// Keys that are given to tasks, in their order: two transactions with the same ones do not wait for each other.
#[derive(Debug, Default)]
pub(super) struct NewKeys(Vec<String>, Vec<Id>);

impl NewKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Many of them, too: a `COPY` has a turn of its own, and that takes longer than it saves.
    pub(super) fn insert(self, ns: i32) -> Call {
        Call::part(&INSERT_KEYS, params![ns, self.0, self.1])
    }
}

#[derive(Debug, Default)]
struct Records {
    keys: Vec<String>,
    fields: Vec<Json>,
    revisions: Vec<i64>,
    modified: Vec<At>,
    expires: Vec<Option<At>>,
}

impl Records {
    fn push(&mut self, record: &Record) -> Answer<()> {
        self.keys.push(record.key.to_string());
        self.fields.push(fields_to_json(&record.fields)?);
        self.revisions.push(signed(record.revision.get()));
        self.modified.push(At(record.modified_at));
        self.expires.push(record.expires_at.map(At));
        Ok(())
    }

    fn params(self, ns: i32) -> Vec<Param> {
        params![
            ns,
            self.keys,
            self.fields,
            self.revisions,
            self.modified,
            self.expires
        ]
    }
}

#[derive(Debug, Default)]
struct Groups {
    ids: Vec<String>,
    spawned: Vec<i64>,
    done: Vec<i64>,
    failed: Vec<i64>,
    sealed: Vec<bool>,
    drained: Vec<Option<At>>,
    bodies: Vec<Vec<u8>>,
}

impl Groups {
    fn push(&mut self, group: &Group) -> Answer<()> {
        self.ids.push(group.id.to_string());
        self.spawned.push(signed(group.spawned));
        self.done.push(signed(group.done));
        self.failed.push(signed(group.failed));
        self.sealed.push(group.sealed);
        self.drained.push(group.drained_at.map(At));
        self.bodies.push(encode(group)?);
        Ok(())
    }

    fn call(self, sql: &'static Sql, ns: i32) -> Option<Call> {
        if self.ids.is_empty() {
            return None;
        }
        let params = params![
            ns,
            self.ids,
            self.spawned,
            self.done,
            self.failed,
            self.sealed,
            self.drained,
            self.bodies
        ];
        Some(Call::new(sql, params))
    }
}
