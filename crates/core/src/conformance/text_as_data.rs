//! Keys, field names and values are data, whatever they mean to the store underneath.

use bytes::Bytes;

use crate::conformance::observe::assert_fields;
use crate::conformance::records::merge;
use crate::conformance::world::{World, conflict, name, text};
use crate::error::Result;
use crate::names::{Key, Name};
use crate::record::{Fields, fields};
use crate::store::{Commit, Get, Guard, Outcome, Put, StoreExt, Write};

cases!["text_as_data":
    values_are_bytes,
    keys_are_data_whatever_they_contain,
    field_names_are_data_whatever_they_contain,
    the_longest_keys_are_told_apart,
];

/// Texts that mean something to SQL, Lua, patterns, paths or subjects, and texts that are easily
/// mistaken for one another. All are different.
#[rustfmt::skip]
pub(super) const AWKWARD: &[&str] = &[
    "%", "_", "*", ">", "?", ".", "..", "/", ":", "'", "\"", "`", ";", "\\", "{", "}", "[", "]",
    "(", "$1", "?1", "@p", "#", "&", "=", "|", "--", "<", "~", "^", "!", "+", ",", " ", "  ",
    "\n", "\r\n", "\t", "\u{1}", "\u{7f}", "\u{feff}", "\u{fffd}", "\u{10ffff}", "null", "NULL",
    "0", "00", "-1", "a", "A", "a.", ".a", "a.b", "a:b", "a/b", "a_b", "a%b", "a*b", "a>b", "a b",
    "a\nb", "a\\b", "a'b", "a''b", "a\"b", "a;b", "a{b}", "a[b]", "a%2Eb", "a%2eb", "a\\u002Eb",
    "a=2Eb", "a..b", "a::b", "a ", " a", "\u{e9}", "e\u{301}", "\u{df}", "ss", "\u{1f41f}",
    "\u{1f41f}\u{1f41f}", "__name__", "'; DROP TABLE records; --", "\" or 1=1", "{{a}}", "$a.b",
];

/// What a store may call its own columns, members and headers.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "key", "revision", "rev", "_rev", "__rev", "version", "ttl", "modified_at", "expires_at",
    "fields", "id", "_id", "data", "value", "rowid", "Nats-TTL", "__proto__", "created_at",
];

async fn values_are_bytes(w: World) -> Result<()> {
    let every: Vec<u8> = (0..=255).collect();
    let values = [
        ("every byte", Bytes::from(every)),
        ("empty", Bytes::new()),
        ("nul", Bytes::from_static(b"\0")),
        (
            "not text",
            Bytes::from_static(b"\xc3\x28 \xff\xfe \xed\xa0\x80"),
        ),
        ("with spaces", Bytes::from_static(b" \r\n\t ")),
        ("a number", Bytes::from_static(b"007.50e0")),
        ("json", Bytes::from_static(b"{\"a\":[null]}")),
        ("large", Bytes::from(vec![0x80; 200 * 1024])),
    ];
    let stored = w.put("key", values.clone()).await?;
    assert_eq!(stored.fields, fields(values.clone())?);
    let mut commit = Commit::new();
    for (field, value) in values {
        let field = name(field)?;
        commit = commit.guard(Guard::Field(stored.key.clone(), field, Some(value)));
    }
    w.store.commit_one(commit).await?;
    for other in [None, Some("\0".into()), Some(" ".into())] {
        let guard = Guard::Field(stored.key.clone(), name("empty")?, other);
        conflict(w.store.commit_one(Commit::new().guard(guard)).await);
    }
    Ok(())
}

async fn keys_are_data_whatever_they_contain(w: World) -> Result<()> {
    let mut commit = Commit::new();
    for text in AWKWARD {
        let value = [("key", text.as_bytes())];
        let put = Put::new(Key::new(text)?, fields(value)?);
        commit = commit.write(Write::Put(put));
    }
    w.store.commit_one(commit).await?;
    let keys = AWKWARD
        .iter()
        .map(Key::new)
        .collect::<Result<Vec<_>, _>>()?;
    for index in 0..keys.len() {
        let found = w.store.get(Get { keys: keys.clone() }).await?;
        let found: Vec<Option<(&str, Option<String>)>> = (found.iter())
            .map(|record| {
                record
                    .as_ref()
                    .map(|r| (r.key.as_str(), text(&r.fields, "key")))
            })
            .collect();
        let left = |(n, text): (usize, &&'static str)| {
            (n >= index).then(|| (*text, Some((*text).to_owned())))
        };
        let expected: Vec<_> = AWKWARD.iter().enumerate().map(left).collect();
        assert_eq!(found, expected);
        let outcome = w.store.write(Write::Delete(keys[index].clone())).await?;
        assert_eq!(outcome, Outcome::Removed { existed: true });
    }
    Ok(())
}

async fn field_names_are_data_whatever_they_contain(w: World) -> Result<()> {
    let names = AWKWARD.iter().chain(RESERVED);
    let all = names.map(|text| Ok((name(text)?, Bytes::from(format!("is {text}")))));
    let all = all.collect::<Result<Fields>>()?;
    assert_eq!(all.len(), AWKWARD.len() + RESERVED.len());
    let stored = w
        .put_record(Put::new(Key::new("key")?, all.clone()))
        .await?;
    assert_eq!(stored.fields, all);
    let (even, odd): (Vec<_>, Vec<_>) =
        (all.into_iter().enumerate()).partition(|(n, _)| n % 2 == 0);
    let unset: Vec<Name> = even.into_iter().map(|(_, (field, _))| field).collect();
    let set: Fields = (odd.into_iter())
        .map(|(_, (field, value))| (field, [b"not ", value.as_ref()].concat().into()))
        .collect();
    let mut write = merge("key")?.set(set.clone());
    write.unset = unset;
    w.store.write(Write::Merge(write)).await?;
    let after = w.record("key").await?;
    assert_eq!(after.as_ref().map(|record| &record.fields), Some(&set));
    assert_eq!(after.and_then(|record| record.expires_at), None);
    Ok(())
}

async fn the_longest_keys_are_told_apart(w: World) -> Result<()> {
    let long = ["k".repeat(511), ".".repeat(511), "\u{1f41f}".repeat(127)];
    let keys: Vec<String> = (long.iter())
        .flat_map(|long| [format!("{long}1"), format!("{long}2"), long.clone()])
        .collect();
    for key in &keys {
        w.put(key, [("key", key.clone())]).await?;
    }
    let field = name(&"f".repeat(128))?;
    for key in &keys {
        let set = Fields::from([(field.clone(), Bytes::from("set"))]);
        let write = Write::Merge(merge(key)?.set(set.clone()));
        w.store.write(write).await?;
        let mut expected = fields([("key", key.clone())])?;
        expected.extend(set);
        assert_fields(&w, key, expected).await?;
    }
    Ok(())
}
