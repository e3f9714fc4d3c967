//! A record for people and for programs.

use std::collections::BTreeMap;

use plimsoll::record::{Fields, Record};
use plimsoll::{Key, Name, Timestamp};
use serde::Serialize;

use crate::client::Client;
use crate::exit::Outcome;
use crate::json;
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::text::{age, clean, cut, escaped};
use crate::wire::At;

/// A value, to the byte: what is expected of a field must be what was read of it.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireValue<'a> {
    Text(&'a str),
    Hex(String),
}

impl<'a> From<&'a [u8]> for WireValue<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Hex(json::hex(bytes)),
        }
    }
}

#[derive(Serialize)]
pub(super) struct WireRecord<'a> {
    key: &'a Key,
    fields: BTreeMap<&'a Name, WireValue<'a>>,
    revision: u64,
    modified_at: At,
    expires_at: Option<At>,
}

impl<'a> From<&'a Record> for WireRecord<'a> {
    fn from(record: &'a Record) -> Self {
        let fields = record.fields.iter();
        let fields = fields.map(|(name, value)| (name, WireValue::from(value.as_ref())));
        Self {
            key: &record.key,
            fields: fields.collect(),
            revision: record.revision.get(),
            modified_at: At(record.modified_at),
            expires_at: record.expires_at.map(At),
        }
    }
}

/// What became of a write.
#[derive(Serialize)]
pub(super) struct WireWritten<'a> {
    pub(super) key: &'a Key,
    pub(super) revision: u64,
}

/// Shows one record, whole.
pub(super) fn show(record: &Record, client: &Client) -> Outcome<bool> {
    let screen = &client.screen;
    match screen.json {
        true => screen.object(&WireRecord::from(record)),
        false => Ok(say(&for_people(record, client.now(), screen))?),
    }
}

fn for_people(record: &Record, now: Timestamp, screen: &Screen) -> String {
    let revision = record.revision;
    let written = age(now, record.modified_at);
    let expires = record
        .expires_at
        .map(|at| format!(", expires {}", age(now, at)));
    let expires = expires.unwrap_or_default();
    let key = screen.paint(Tint::Strong, &clean(record.key.as_str()));
    let mut text = format!("{key}  revision {revision}, written {written}{expires}\n");
    let fields = record.fields.iter();
    let fields: Vec<_> = fields
        .map(|(name, value)| (clean(name.as_str()), escaped(value)))
        .collect();
    let widths = fields
        .iter()
        .map(|(name, _)| console::measure_text_width(name));
    let widest = widths.max().unwrap_or_default();
    for (name, value) in fields {
        let blanks = " ".repeat(widest - console::measure_text_width(&name));
        let name = screen.paint(Tint::Faint, &name);
        let room = screen.width.unwrap_or(usize::MAX);
        let value = cut(&value, room.saturating_sub(widest + 4));
        text += format!("  {name}{blanks}  {value}").trim_end();
        text.push('\n');
    }
    text
}

/// All fields on one line: `state=pending note="two words"`.
pub(super) fn in_line(fields: &Fields) -> String {
    let fields = fields.iter().map(|(name, value)| {
        let (name, value) = (clean(name.as_str()), escaped(value));
        match value.is_empty() || value.contains(' ') {
            true => format!("{name}=\"{value}\""),
            false => format!("{name}={value}"),
        }
    });
    fields.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use plimsoll::Revision;
    use plimsoll::record::fields;

    use super::*;

    fn record() -> Record {
        let written = Timestamp::from_micros(1_700_000_000_000_000).expect("a moment");
        let values = [
            ("state", Bytes::from_static(b"pending")),
            ("blob", Bytes::from_static(b"a\n\xff\x1b[1m")),
            ("empty", Bytes::new()),
            ("note", Bytes::from_static(b"two words")),
        ];
        Record {
            key: Key::new("job.7").expect("a key"),
            fields: fields(values).expect("fields"),
            revision: Revision::new(3),
            modified_at: written,
            expires_at: Some(written.saturating_plus(Duration::from_secs(300))),
        }
    }

    #[test]
    fn a_record_is_shown_to_people_without_harm_to_their_terminal() {
        let record = record();
        let now = record.modified_at;
        let expected = "\
job.7  revision 3, written now, expires in 5m
  blob   a\\n\\xff\\u{1b}[1m
  empty
  note   two words
  state  pending
";
        assert_eq!(for_people(&record, now, &Screen::plain(None)), expected);
        let narrow = for_people(&record, now, &Screen::plain(Some(14)));
        assert!(narrow.contains("\n  note   two …\n"), "{narrow}");
        let line = r#"blob=a\n\xff\u{1b}[1m empty="" note="two words" state=pending"#;
        assert_eq!(in_line(&record.fields), line);
    }

    #[test]
    fn a_record_is_told_to_programs_to_the_byte() {
        let told = serde_json::to_string(&WireRecord::from(&record())).expect("JSON");
        let expected = concat!(
            r#"{"key":"job.7","fields":{"blob":{"hex":"610aff1b5b316d"},"empty":{"text":""},"#,
            r#""note":{"text":"two words"},"state":{"text":"pending"}},"revision":3,"#,
            r#""modified_at":"2023-11-14T22:13:20Z","expires_at":"2023-11-14T22:18:20Z"}"#,
        );
        assert_eq!(told, expected);
    }
}
