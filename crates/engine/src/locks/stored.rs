//! How locks are stored: which records, and what is in them.
//!
//! | record | there while | fields |
//! |---|---|---|
//! | `plimsoll.locks.{name}` | the lock is held, or reserved for one who waits | `holder`, `owner`, `since`; `metadata` if given; `token` once it was renewed; `reserved` |
//! | `plimsoll.lock-lines.{name}` | somebody may stand in line | none |
//! | `plimsoll.lock-waiters.{bytes of name}.{name}.{ticket}.{holder}` | this one is waiting | `holder`, `owner` |
//!
//! All have a time to live. One whose time to live was taken away never ends. A lock's own record is
//! written by its holder alone, and by whoever takes it away; so until the first renewal its revision
//! is the token.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::record::{Fields, Record, integer};
use plimsoll_core::store::{Commit, Guard, Merge, Put, Write};
use plimsoll_core::{Error, Invalid, Key, Name, Prefix, RequestId, Result, Revision};
use plimsoll_core::{Timestamp, Token};

pub(super) const LOCKS: &str = "plimsoll.locks.";
const LINES: &str = "plimsoll.lock-lines.";
const WAITERS: &str = "plimsoll.lock-waiters.";

const HOLDER: &str = "holder";
const OWNER: &str = "owner";
const SINCE: &str = "since";
const METADATA: &str = "metadata";
const TOKEN: &str = "token";
const RESERVED: &str = "reserved";

/// The keys of a lock.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) name: Name,
    pub(super) lock: Key,
    pub(super) line: Key,
}

impl Keys {
    pub(super) fn of(name: Name) -> Result<Self, Invalid> {
        Ok(Self {
            lock: Key::new(format!("{LOCKS}{name}"))?,
            line: Key::new(format!("{LINES}{name}"))?,
            name,
        })
    }

    /// What the keys of all who wait begin with. With its length before it, no name is the
    /// beginning of another.
    pub(super) fn waiters(&self) -> Result<Prefix, Invalid> {
        Prefix::new(format!(
            "{WAITERS}{}.{}.",
            self.name.as_str().len(),
            self.name
        ))
    }

    /// The key of one who waits. With all its digits, the lowest ticket comes first.
    pub(super) fn waiter(&self, ticket: Revision, holder: &Holder) -> Result<Key, Invalid> {
        Key::new(format!(
            "{}{:020}.{}",
            self.waiters()?,
            ticket.get(),
            holder.0
        ))
    }

    /// Only if this one has the lock, or it is reserved for it.
    pub(super) fn is_for(&self, holder: Holder) -> Result<Guard, Invalid> {
        let field = Name::new(HOLDER)?;
        let holder = Some(holder.bytes());
        Ok(Guard::Field(self.lock.clone(), field, holder))
    }

    /// Only if this one has the lock. Not if it is only reserved: a place in the line that is
    /// written late may be that of one who has had its turn.
    pub(super) fn held_by(&self, holder: Holder) -> Result<[Guard; 2], Invalid> {
        let reserved = Name::new(RESERVED)?;
        let not_reserved = Guard::Field(self.lock.clone(), reserved, None);
        Ok([self.is_for(holder)?, not_reserved])
    }

    /// Prolongs the lock. The first renewal carries the token: the revision does not tell it any
    /// more afterwards.
    pub(super) fn renewal(
        &self,
        holder: Holder,
        ttl: Duration,
        token: Option<Token>,
    ) -> Result<Commit, Invalid> {
        let mut commit = Commit::new();
        commit.guards.extend(self.held_by(holder)?);
        if let Some(token) = token {
            let field = (Name::new(TOKEN)?, Bytes::from(token.to_string()));
            let merge = Merge::new(self.lock.clone()).set(Fields::from([field]));
            commit = commit.write(Write::Merge(merge));
        }
        Ok(commit.write(Write::Touch(self.lock.clone(), Some(ttl))))
    }
}

/// Names one acquisition. Whoever takes a lock makes it, so that one who did not hear the answer
/// finds itself in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder(pub(super) RequestId);

impl Holder {
    fn bytes(self) -> Bytes {
        Bytes::from(self.0.to_string())
    }

    /// Who a record is about.
    pub(super) fn of(record: &Record) -> Result<Self> {
        let text = record
            .field(HOLDER)
            .and_then(|id| std::str::from_utf8(id).ok());
        let id = text.and_then(|text| RequestId::parse(text).ok());
        id.map(Self).ok_or_else(|| unreadable(record, HOLDER))
    }
}

/// What a lock's record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) holder: Holder,
    pub(super) owner: String,
    pub(super) metadata: Option<Bytes>,
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) token: Token,
    /// Nobody has it yet, but only this holder may take it.
    pub(super) reserved: bool,
    pub(super) revision: Revision,
}

impl Stored {
    pub(super) fn read(record: &Record) -> Result<Self> {
        let since = match number(record, SINCE)? {
            Some(micros) => Timestamp::from_micros(micros)?,
            None => return Err(unreadable(record, SINCE)),
        };
        let token = match number(record, TOKEN)? {
            Some(token) => u64::try_from(token).map_err(|_| unreadable(record, TOKEN))?,
            None => record.revision.get(),
        };
        Ok(Self {
            holder: Holder::of(record)?,
            owner: owner(record)?,
            metadata: record.field(METADATA).cloned(),
            since,
            until: record.expires_at.unwrap_or(Timestamp::MAX),
            token: Token::new(token),
            reserved: record.field(RESERVED).is_some(),
            revision: record.revision,
        })
    }
}

/// One who stands in line.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) place: Key,
    pub(super) holder: Holder,
    owner: String,
}

impl Waiter {
    pub(super) fn read(record: &Record) -> Result<Self> {
        Ok(Self {
            place: record.key.clone(),
            holder: Holder::of(record)?,
            owner: owner(record)?,
        })
    }
}

/// The record of a lock that is held.
pub(super) fn held(
    keys: &Keys,
    holder: Holder,
    owner: &str,
    metadata: Option<&Bytes>,
    since: Timestamp,
    ttl: Duration,
) -> Result<Put, Invalid> {
    let mut fields = about(holder, owner)?;
    fields.insert(Name::new(SINCE)?, decimal(since.as_micros()));
    if let Some(metadata) = metadata {
        fields.insert(Name::new(METADATA)?, metadata.clone());
    }
    Ok(Put::new(keys.lock.clone(), fields).ttl(ttl))
}

/// The record of a lock that only this one may take.
pub(super) fn reserved(
    keys: &Keys,
    waiter: &Waiter,
    since: Timestamp,
    ttl: Duration,
) -> Result<Put, Invalid> {
    let mut put = held(keys, waiter.holder, &waiter.owner, None, since, ttl)?;
    put.fields
        .insert(Name::new(RESERVED)?, Bytes::from_static(b"1"));
    Ok(put)
}

/// Who waits, or has it.
pub(super) fn about(holder: Holder, owner: &str) -> Result<Fields, Invalid> {
    Ok(Fields::from([
        (Name::new(HOLDER)?, holder.bytes()),
        (Name::new(OWNER)?, Bytes::from(owner.to_owned())),
    ]))
}

fn owner(record: &Record) -> Result<String> {
    let owner = record.field(OWNER).map(|owner| owner.to_vec());
    let owner = owner.and_then(|owner| String::from_utf8(owner).ok());
    owner.ok_or_else(|| unreadable(record, OWNER))
}

fn number(record: &Record, field: &str) -> Result<Option<i64>> {
    match record.field(field) {
        None => Ok(None),
        Some(value) => match integer(value) {
            Some(number) => Ok(Some(number)),
            None => Err(unreadable(record, field)),
        },
    }
}

fn decimal(number: i64) -> Bytes {
    Bytes::from(number.to_string())
}

fn unreadable(record: &Record, field: &str) -> Error {
    Error::Corrupt(format!("field {field} of record {}", record.key).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waiters_of_one_lock_are_never_those_of_another() {
        let names = [
            "a",
            "a.",
            "a.1",
            "1.a",
            "1.a.",
            "a.00000000000000000001",
            "é",
        ];
        let holder = Holder(RequestId::from_u128(7));
        for one in names {
            for other in names {
                let keys = |name| Keys::of(Name::new(name).unwrap()).unwrap();
                let waiter = keys(one).waiter(Revision::new(1), &holder).unwrap();
                let among = keys(other).waiters().unwrap().matches(waiter.as_str());
                assert_eq!(among, one == other, "{one} among {other}");
            }
        }
    }

    #[test]
    fn the_longest_name_has_keys_and_waiters_come_in_the_order_of_their_tickets() {
        let keys = Keys::of(Name::new("x".repeat(128)).unwrap()).unwrap();
        let key = |ticket, id| {
            let holder = Holder(RequestId::from_u128(id));
            keys.waiter(Revision::new(ticket), &holder).unwrap()
        };
        assert!(key(9, 2) < key(10, 1));
        assert!(key(u64::MAX - 1, 2) < key(u64::MAX, 1));
    }
}
