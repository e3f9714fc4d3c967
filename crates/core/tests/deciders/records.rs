//! Records: what each write leaves, with the edge values of integers.

use bytes::Bytes;
use plimsoll_core::decide::{Moment, record};
use plimsoll_core::error::{Conflict, Error, NotFound};
use plimsoll_core::record::{Fields, Record, fields};
use plimsoll_core::store::{Merge, Put};
use plimsoll_core::{Key, Limits, Revision, Timestamp};

use crate::{at, moment, name, secs};

const NOW: u64 = 1_000;

fn key() -> Key {
    Key::new("k").unwrap()
}

fn stored(fields: Fields, expires_at: Option<u64>) -> Record {
    Record {
        key: key(),
        fields,
        revision: Revision::new(40),
        modified_at: at(900),
        expires_at: expires_at.map(at),
    }
}

/// The record as a write at `NOW` leaves it.
fn written(fields: Fields, expires_at: Option<u64>) -> Record {
    Record {
        revision: moment(at(NOW)).revision,
        modified_at: at(NOW),
        ..stored(fields, expires_at)
    }
}

fn pair(value: &'static str) -> Fields {
    fields([("n", value)]).unwrap()
}

#[test]
fn a_record_is_live_until_the_moment_it_expires() {
    for (expires_at, live) in [
        (None, true),
        (Some(NOW + 1), true),
        (Some(NOW), false),
        (Some(NOW - 1), false),
    ] {
        let record = stored(pair("1"), expires_at);
        let found = record::live(Some(&record), &moment(at(NOW)));
        assert_eq!(found, live.then_some(&record), "{expires_at:?}");
    }
    assert_eq!(record::live(None, &moment(at(NOW))), None);
}

#[test]
fn a_put_replaces_everything() {
    let m = moment(at(NOW));
    let put = Put::new(key(), pair("2"));
    assert_eq!(record::put(&put, &m), Ok(written(pair("2"), None)));
    let put = put.ttl(secs(5));
    assert_eq!(record::put(&put, &m), Ok(written(pair("2"), Some(NOW + 5))));
}

#[test]
fn a_time_to_live_past_the_year_9999_is_refused() {
    let m = moment(Timestamp::MAX);
    let put = Put::new(key(), pair("2")).ttl(secs(1));
    let record = stored(pair("1"), None);
    for refused in [
        record::put(&put, &m),
        record::touch(Some(&record), &key(), Some(secs(1)), &m),
    ] {
        assert!(
            matches!(&refused, Err(Error::Invalid(i)) if i.field == "ttl"),
            "{refused:?}"
        );
    }
}

#[test]
fn a_merge_changes_the_fields_it_names_and_keeps_the_time_to_live() {
    let before = stored(
        fields([("a", "1"), ("b", "2"), ("c", "3"), ("n", "4"), ("r", "5")]).unwrap(),
        Some(NOW + 9),
    );
    let merge = Merge::new(key())
        .set(fields([("a", "one"), ("d", "four")]).unwrap())
        .unset(name("b"))
        .unset(name("absent"))
        .add(name("n"), -6)
        .add(name("m"), 7)
        .raise(name("r"), 6)
        .raise(name("s"), -8);
    let after = fields([
        ("a", "one"),
        ("c", "3"),
        ("d", "four"),
        ("m", "7"),
        ("n", "-2"),
        ("r", "6"),
        ("s", "-8"),
    ]);
    let expected = written(after.unwrap(), Some(NOW + 9));
    assert_eq!(
        record::merge(Some(&before), &merge, &moment(at(NOW))),
        Ok(expected)
    );
}

#[test]
fn a_merge_into_nothing_makes_a_record_that_lives_for_ever() {
    let merge = Merge::new(key()).set(pair("1"));
    let found = record::merge(None, &merge, &moment(at(NOW)));
    assert_eq!(found, Ok(written(pair("1"), None)));
    let found = record::merge(None, &Merge::new(key()), &moment(at(NOW)));
    assert_eq!(found, Ok(written(Fields::new(), None)));
}

/// What a field holds, what is added or raised to, and what it holds then.
#[derive(Clone, Copy)]
enum Then {
    Holds(&'static str),
    NotInteger,
    Overflow,
}

#[test]
fn add_and_raise_do_what_the_table_says() {
    use Then::{Holds, NotInteger, Overflow};
    const MAX: &str = "9223372036854775807";
    const MIN: &str = "-9223372036854775808";
    let table: [(Option<&'static str>, i64, Then, Then); 26] = [
        // the field,        number,   added,                         raised
        (None, 0, Holds("0"), Holds("0")),
        (None, i64::MAX, Holds(MAX), Holds(MAX)),
        (None, i64::MIN, Holds(MIN), Holds(MIN)),
        (Some("0"), -1, Holds("-1"), Holds("0")),
        // Only what `add` itself would write is an integer, so that all stores agree on it.
        (Some("-0"), 0, NotInteger, NotInteger),
        (Some("00"), 0, NotInteger, NotInteger),
        (Some("007"), 1, NotInteger, NotInteger),
        (Some("-07"), 1, NotInteger, NotInteger),
        (Some("+5"), 1, NotInteger, NotInteger),
        (Some("-+5"), 1, NotInteger, NotInteger),
        (Some("-"), 1, NotInteger, NotInteger),
        (Some("-5"), -3, Holds("-8"), Holds("-3")),
        (Some("9"), 10, Holds("19"), Holds("10")),
        (Some(MAX), 0, Holds(MAX), Holds(MAX)),
        (Some(MAX), 1, Overflow, Holds(MAX)),
        (Some(MAX), i64::MIN, Holds("-1"), Holds(MAX)),
        (Some(MIN), -1, Overflow, Holds("-1")),
        (Some(MIN), i64::MAX, Holds("-1"), Holds(MAX)),
        (Some(MIN), i64::MIN, Overflow, Holds(MIN)),
        (Some("9223372036854775808"), 0, NotInteger, NotInteger),
        (Some(""), 1, NotInteger, NotInteger),
        (Some(" 1"), 1, NotInteger, NotInteger),
        (Some("1.0"), 1, NotInteger, NotInteger),
        (Some("1e3"), 1, NotInteger, NotInteger),
        (Some("0x1"), 1, NotInteger, NotInteger),
        (Some("one"), 1, NotInteger, NotInteger),
    ];
    let expected = |then| match then {
        Holds(text) => Ok(written(pair(text), None)),
        NotInteger => Err(Conflict::NotInteger {
            key: key(),
            field: name("n"),
        }
        .into()),
        Overflow => Err(Conflict::Overflow {
            key: key(),
            field: name("n"),
        }
        .into()),
    };
    for (field, number, added, raised) in table {
        let before = field.map(|field| stored(pair(field), None));
        let m = moment(at(NOW));
        let add = Merge::new(key()).add(name("n"), number);
        let found = record::merge(before.as_ref(), &add, &m);
        assert_eq!(found, expected(added), "{field:?} + {number}");
        let raise = Merge::new(key()).raise(name("n"), number);
        let found = record::merge(before.as_ref(), &raise, &m);
        assert_eq!(found, expected(raised), "{field:?} raised to {number}");
    }
}

#[test]
fn bytes_that_are_not_text_are_no_integer() {
    let before = stored([(name("n"), Bytes::from_static(b"\xff1"))].into(), None);
    let add = Merge::new(key()).add(name("n"), 1);
    let not_integer = Conflict::NotInteger {
        key: key(),
        field: name("n"),
    };
    let found = record::merge(Some(&before), &add, &moment(at(NOW)));
    assert_eq!(found, Err(not_integer.into()));
}

#[test]
fn a_merge_that_would_exceed_a_limit_is_refused() {
    let before = stored(fields([("a", "12345"), ("b", "12345")]).unwrap(), None);
    let merge = Merge::new(key()).set(fields([("c", "12345")]).unwrap());
    let limits = |fields_max, record_bytes_max| Limits {
        fields_max,
        record_bytes_max,
        ..Limits::default()
    };
    for (limits, allowed) in [
        (limits(3, 18), true),
        (limits(2, 18), false),
        (limits(3, 17), false),
    ] {
        let m = Moment {
            limits: &limits,
            ..moment(at(NOW))
        };
        match record::merge(Some(&before), &merge, &m) {
            Ok(_) => assert!(allowed, "{limits:?}"),
            Err(Error::Conflict(conflict)) => {
                let named = matches!(&*conflict, Conflict::TooLarge { key: k, .. } if *k == key());
                assert!(!allowed && named, "{conflict:?}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_touch_changes_when_a_record_expires_and_keeps_what_it_holds() {
    let m = moment(at(NOW));
    for expires_at in [None, Some(NOW + 9)] {
        let before = stored(pair("1"), expires_at);
        for (ttl, until) in [(None, None), (Some(secs(5)), Some(at(NOW + 5)))] {
            let expected = Record {
                revision: m.revision,
                expires_at: until,
                ..before.clone()
            };
            assert_eq!(record::touch(Some(&before), &key(), ttl, &m), Ok(expected));
        }
    }
    let absent = record::touch(None, &key(), None, &m);
    assert_eq!(absent, Err(NotFound::Record(key()).into()));
}
