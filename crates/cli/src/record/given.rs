//! Keys, fields and values as people type them.

use std::collections::BTreeSet;
use std::ops::Bound;

use bytes::Bytes;
use clap::Args;
use plimsoll::record::{Value, integer};
use plimsoll::records::OF_THE_ENGINE;
use plimsoll::{Key, Name, Prefix};

use crate::exit::{CliError, Outcome};
use crate::input;

/// A key that may be written.
pub(super) fn key(text: &str) -> Result<Key, String> {
    not_of_the_engine(text)?;
    Key::new(text).map_err(|invalid| invalid.to_string())
}

/// A prefix on which an index may be declared.
pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    not_of_the_engine(text)?;
    Prefix::new(text).map_err(|invalid| invalid.to_string())
}

fn not_of_the_engine(text: &str) -> Result<(), String> {
    match text.starts_with(OF_THE_ENGINE) {
        true => Err(format!(
            "what begins with {OF_THE_ENGINE} is not yours to change"
        )),
        false => Ok(()),
    }
}

/// A field and its value, which has not been read yet.
#[derive(Clone, Debug)]
pub(super) struct Given {
    name: Name,
    value: String,
}

/// `FIELD=VALUE`
pub(super) fn given(text: &str) -> Result<Given, String> {
    let (name, value) = split(text, "expected FIELD=VALUE")?;
    let value = value.to_owned();
    Ok(Given { name, value })
}

/// `FIELD=NUMBER`
pub(super) fn number(text: &str) -> Result<(Name, i64), String> {
    let expected = "expected FIELD=NUMBER with an integer of 64 bits";
    let (name, value) = split(text, expected)?;
    Ok((name, value.parse().map_err(|_| expected)?))
}

/// The integers between two bounds.
pub(super) type Bounds = (Bound<i64>, Bound<i64>);

/// `FIELD=A..B`, `A..=B`, `A..` or `..B`, as Rust writes ranges.
pub(super) fn range(text: &str) -> Result<(Name, Bounds), String> {
    let expected = "expected FIELD=A..B, where B does not belong to it, A..=B, A.. or ..B";
    let (name, bounds) = split(text, expected)?;
    let (first, last) = bounds.split_once("..").ok_or(expected)?;
    let bound = |text: &str, of: fn(i64) -> Bound<i64>| match text {
        "" => Ok(Bound::Unbounded),
        number => number.parse().map(of).map_err(|_| expected),
    };
    let last = match last.strip_prefix('=') {
        Some("") => return Err(expected.into()),
        Some(last) => bound(last, Bound::Included)?,
        None => bound(last, Bound::Excluded)?,
    };
    Ok((name, (bound(first, Bound::Included)?, last)))
}

fn split<'a>(text: &'a str, expected: &str) -> Result<(Name, &'a str), String> {
    let (name, value) = text.split_once('=').ok_or(expected)?;
    let name = Name::for_field("field", name).map_err(|invalid| invalid.to_string())?;
    Ok((name, value))
}

/// Reads values: the text itself, `@FILE`, `@-` for standard input, or `@@` for text that begins
/// with one `@`.
#[derive(Debug)]
pub(super) struct Values {
    /// How many bytes the store takes.
    max: usize,
    stdin_was_read: bool,
}

impl Values {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            stdin_was_read: false,
        }
    }

    pub(super) fn read(&mut self, value: &str) -> Outcome<Bytes> {
        let bytes = match value.strip_prefix('@') {
            None => value.as_bytes().to_vec(),
            Some(text) if text.starts_with('@') => text.as_bytes().to_vec(),
            Some("-") if self.stdin_was_read => {
                let why = "@-: standard input can be read only once";
                return Err(CliError::Usage(why.into()));
            }
            Some("-") => {
                self.stdin_was_read = true;
                input::payload("-", self.max)?
            }
            Some(_) => input::payload(value, self.max)?,
        };
        Ok(bytes.into())
    }

    pub(super) fn all(&mut self, given: &[Given]) -> Outcome<Vec<(Name, Bytes)>> {
        let read = |field: &Given| Ok((field.name.clone(), self.read(&field.value)?));
        given.iter().map(read).collect()
    }

    /// With the type to compare as: an integer where the text is one, unless all is text.
    pub(super) fn typed(&mut self, given: &Given, text: bool) -> Outcome<(Name, Value)> {
        let bytes = self.read(&given.value)?;
        Ok((given.name.clone(), typed(bytes, text)))
    }
}

fn typed(bytes: Bytes, text: bool) -> Value {
    match (integer(&bytes), std::str::from_utf8(&bytes)) {
        (Some(number), _) if !text => Value::Integer(number),
        (_, Ok(text)) => Value::Text(text.into()),
        (_, Err(_)) => Value::Bytes(bytes),
    }
}

/// Changes of fields besides setting them.
#[derive(Debug, Args)]
pub(super) struct Changes {
    /// Removes this field.
    #[arg(long, value_name = "FIELD")]
    pub(super) unset: Vec<Name>,
    /// Adds to an integer; one that is not there counts as zero.
    #[arg(long, value_name = "FIELD=NUMBER", value_parser = number)]
    pub(super) add: Vec<(Name, i64)>,
    /// Raises an integer to this, if it is lower or not there.
    #[arg(long, value_name = "FIELD=NUMBER", value_parser = number)]
    pub(super) raise: Vec<(Name, i64)>,
}

impl Changes {
    /// That no field is changed twice, by these or because it is set.
    pub(super) fn check(&self, set: &[(Name, Bytes)]) -> Outcome<()> {
        let counted = self.add.iter().chain(&self.raise).map(|(name, _)| name);
        let set = set.iter().map(|(name, _)| name);
        once(set.chain(&self.unset).chain(counted))
    }
}

/// Of two values for one field, nobody knows which is meant.
pub(super) fn once<'a>(names: impl IntoIterator<Item = &'a Name>) -> Outcome<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            let twice = format!("field {name} is given more than once");
            return Err(CliError::Usage(twice));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_as_in_rust() {
        use Bound::{Excluded, Included, Unbounded};
        for (text, expected) in [
            ("n=1..9", (Included(1), Excluded(9))),
            ("n=-5..=-1", (Included(-5), Included(-1))),
            ("n=7..", (Included(7), Unbounded)),
            ("n=..7", (Unbounded, Excluded(7))),
            ("n=..=7", (Unbounded, Included(7))),
            ("n=..", (Unbounded, Unbounded)),
        ] {
            let (name, bounds) = range(text).expect(text);
            assert_eq!((name.as_str(), bounds), ("n", expected), "{text}");
        }
        for text in [
            "n",
            "n=",
            "n=7",
            "=1..2",
            "n=a..b",
            "n=1...3",
            "n=1..=",
            "n=1..2..3",
        ] {
            assert!(range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_is_compared_as_what_it_looks_like() {
        let typed = |bytes: &'static [u8], text| typed(Bytes::from_static(bytes), text);
        assert_eq!(typed(b"-7", false), Value::Integer(-7));
        assert_eq!(typed(b"-7", true), Value::Text("-7".into()));
        // No integer is stored like this.
        assert_eq!(typed(b"007", false), Value::Text("007".into()));
        assert_eq!(typed(b"", false), Value::Text(String::new()));
        for text in [false, true] {
            assert_eq!(
                typed(b"\xff", text),
                Value::Bytes(Bytes::from_static(b"\xff"))
            );
        }
    }

    #[test]
    fn what_belongs_to_the_engine_is_not_changed() {
        assert!(key("plimsoll.locks.nightly").is_err());
        assert!(prefix("plimsoll.").is_err());
        for text in ["plimsoll", "plimsolls.a", "a.plimsoll."] {
            assert_eq!(key(text).expect(text).as_str(), text);
            assert_eq!(prefix(text).expect(text).as_str(), text);
        }
        assert_eq!(prefix(""), Ok(Prefix::any()));
    }
}
