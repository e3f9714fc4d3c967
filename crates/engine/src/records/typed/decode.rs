//! From fields to a struct, by the types that the struct says.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

use bytes::Bytes;
use plimsoll_core::record::{Fields, Record};
use plimsoll_core::{Error, Name, Result};
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// The value that the fields of a record hold: see [`Typed`](super::Typed). `corrupt` if they cannot be
/// read as such; the error names the record and the field.
///
/// ```
/// # use plimsoll_core::{Key, Revision, Timestamp, record::{Record, fields}};
/// #[derive(serde::Deserialize)]
/// struct Job { step: u32 }
/// # let record = |fields| Record { key: Key::new("job.7").unwrap(), fields, revision: Revision::default(), modified_at: Timestamp::MIN, expires_at: None };
/// let record = record(fields([("step", "soon")])?);
/// let error = plimsoll_engine::records::from_record::<Job>(&record).err().unwrap();
/// assert_eq!(error.code(), "corrupt");
/// assert!(error.to_string().contains("record job.7: field step: "));
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
pub fn from_record<T: DeserializeOwned>(record: &Record) -> Result<T> {
    let read = T::deserialize(Whole(record.fields.iter()));
    read.map_err(|unreadable| corrupt(format_args!("record {}: {unreadable}", record.key)))
}

/// The value that these fields hold; `corrupt` if they cannot be read as such.
pub fn from_fields<T: DeserializeOwned>(fields: &Fields) -> Result<T> {
    T::deserialize(Whole(fields.iter())).map_err(corrupt)
}

/// Those of the other fields that are read as one that is written, under another name of it (`#[serde(alias)]`). A record with
/// both cannot be read. What is read and never written (`#[serde(skip_serializing)]`) is none of them.
pub(super) fn aliases<T: DeserializeOwned>(
    written: &Fields,
    mut others: BTreeMap<&Name, &Bytes>,
) -> Vec<Name> {
    let mut aliases = Vec::new();
    while !others.is_empty() {
        // What is written comes first: so the second value is that of the other name.
        let rest = others.iter().map(|(name, value)| (*name, *value));
        let read = T::deserialize(Whole(written.iter().chain(rest)));
        match read.err() {
            Some(Unreadable {
                field: Some(name),
                twice: true,
                ..
            }) if others.remove(&name).is_some() => aliases.push(name),
            _ => break,
        }
    }
    aliases
}

fn corrupt(why: impl Display) -> Error {
    Error::Corrupt(why.to_string().into())
}

/// Why something cannot be read, and in which field.
#[derive(Debug)]
struct Unreadable {
    field: Option<Name>,
    why: String,
    /// Whether it is a second value of the same field.
    twice: bool,
}

impl Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "field {field}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for Unreadable {}

impl de::Error for Unreadable {
    fn custom<T: Display>(why: T) -> Self {
        let why = why.to_string();
        Self {
            field: None,
            why,
            twice: false,
        }
    }

    fn duplicate_field(field: &'static str) -> Self {
        let why = format_args!("duplicate field `{field}`");
        Self {
            twice: true,
            ..Self::custom(why)
        }
    }
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        de::Error::custom(error)
    }
}

/// All fields, as a map.
struct Whole<I>(I);

impl<'de, I: Iterator<Item = (&'de Name, &'de Bytes)>> Deserializer<'de> for Whole<I> {
    type Error = Unreadable;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        let mut walk = Walk {
            left: self.0,
            at: None,
        };
        let read = visitor.visit_map(&mut walk);
        read.map_err(|unreadable| match unreadable.twice {
            true => Unreadable {
                field: walk.at.map(|(name, _)| name.clone()),
                ..unreadable
            },
            false => unreadable,
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Walk<'de, I> {
    left: I,
    at: Option<(&'de Name, &'de Bytes)>,
}

impl<'de, I: Iterator<Item = (&'de Name, &'de Bytes)>> MapAccess<'de> for Walk<'de, I> {
    type Error = Unreadable;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unreadable> {
        self.at = self.left.next();
        let name = self.at.map(|(name, _)| Plain(name.as_str().as_bytes()));
        name.map(|name| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, Unreadable> {
        let none = || <Unreadable as de::Error>::custom("a value without a name");
        let (name, value) = self.at.ok_or_else(none)?;
        seed.deserialize(Plain(value))
            .map_err(|unreadable| Unreadable {
                field: Some(name.clone()),
                ..unreadable
            })
    }
}

/// The value of one field.
#[derive(Clone, Copy)]
struct Plain<'de>(&'de [u8]);

impl<'de> Plain<'de> {
    fn text(self) -> Result<&'de str, Unreadable> {
        std::str::from_utf8(self.0).map_err(|_| de::Error::custom("not UTF-8"))
    }

    fn parsed<T: FromStr>(self, what: &str) -> Result<T, Unreadable> {
        let unreadable = |_| de::Error::custom(format_args!("expected {what}"));
        self.text()?.parse().map_err(unreadable)
    }

    fn json<T>(
        self,
        read: impl FnOnce(&mut Json<'de>) -> serde_json::Result<T>,
    ) -> Result<T, Unreadable> {
        let mut json = serde_json::Deserializer::from_slice(self.0);
        let value = read(&mut json)?;
        json.end()?;
        Ok(value)
    }
}

type Json<'de> = serde_json::Deserializer<serde_json::de::SliceRead<'de>>;

macro_rules! parsed {
    ($($name:ident $visit:ident $what:literal),+ $(,)?) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
            visitor.$visit(self.parsed($what)?)
        })+
    };
}
macro_rules! finite {
    ($($name:ident $visit:ident $type:ty),+) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
            let number: $type = self.parsed("a number")?;
            match number.is_finite() {
                true => visitor.$visit(number),
                false => Err(de::Error::custom("expected a finite number")),
            }
        })+
    };
}
macro_rules! text {
    ($($name:ident),+) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
            visitor.visit_borrowed_str(self.text()?)
        })+
    };
}
macro_rules! json {
    ($($name:ident($($arg:ident: $type:ty),*)),+ $(,)?) => {
        $(fn $name<V: Visitor<'de>>(self, $($arg: $type,)* visitor: V) -> Result<V::Value, Unreadable> {
            self.json(|json| json.$name($($arg,)* visitor))
        })+
    };
}

impl<'de> Deserializer<'de> for Plain<'de> {
    type Error = Unreadable;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Unreadable> {
        Err(de::Error::custom("its type does not say how to read it"))
    }

    parsed!(
        deserialize_bool visit_bool "true or false",
        deserialize_i8 visit_i8 "an integer of 8 bits",
        deserialize_i16 visit_i16 "an integer of 16 bits",
        deserialize_i32 visit_i32 "an integer of 32 bits",
        deserialize_i64 visit_i64 "an integer of 64 bits",
        deserialize_i128 visit_i128 "an integer of 128 bits",
        deserialize_u8 visit_u8 "an integer of 8 bits without a sign",
        deserialize_u16 visit_u16 "an integer of 16 bits without a sign",
        deserialize_u32 visit_u32 "an integer of 32 bits without a sign",
        deserialize_u64 visit_u64 "an integer of 64 bits without a sign",
        deserialize_u128 visit_u128 "an integer of 128 bits without a sign",
        deserialize_char visit_char "one character",
    );
    finite!(deserialize_f32 visit_f32 f32, deserialize_f64 visit_f64 f64);
    text!(deserialize_str, deserialize_string, deserialize_identifier);
    json!(
        deserialize_unit(),
        deserialize_unit_struct(name: &'static str),
        deserialize_seq(),
        deserialize_tuple(len: usize),
        deserialize_tuple_struct(name: &'static str, len: usize),
        deserialize_map(),
        deserialize_struct(name: &'static str, fields: &'static [&'static str]),
    );

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_borrowed_bytes(self.0)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_borrowed_bytes(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant with something in it is an object in JSON; one without is its name.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        match self.0.first() {
            Some(b'{') => self.json(|json| json.deserialize_enum(name, variants, visitor)),
            _ => StrDeserializer::new(self.text()?).deserialize_enum(name, variants, visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_unit()
    }
}
