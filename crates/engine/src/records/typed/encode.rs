//! From a struct to fields.

use std::fmt::Display;

use bytes::Bytes;
use plimsoll_core::Name;
use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::record::Fields;
use serde::ser::{self, Impossible, Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::json;

/// The fields of a struct, or of a map with text for keys: see [`Typed`](super::Typed). `invalid` if it
/// is neither, or a field cannot be stored.
///
/// ```
/// #[derive(serde::Serialize)]
/// struct Job { state: &'static str, step: u32, error: Option<String> }
/// let fields = plimsoll_engine::records::to_fields(&Job { state: "running", step: 2, error: None })?;
/// assert_eq!(fields.len(), 2);
/// assert_eq!(fields["step"], "2");
/// # Ok::<(), plimsoll_core::Error>(())
/// ```
pub fn to_fields<T: Serialize + ?Sized>(value: &T) -> plimsoll_core::Result<Fields> {
    match value.serialize(Whole) {
        Ok(fields) => Ok(fields),
        Err(Unfit::Not) => Err(Invalid::new(
            "record",
            Problem::Malformed {
                expected: "a struct, or a map with text for keys".into(),
            },
        )
        .into()),
        Err(Unfit::Invalid(invalid)) => Err(invalid.into()),
    }
}

/// Why something cannot be told in the way that was tried.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("not of this form")]
    Not,
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Unfit {
    fn problem(why: impl Display) -> Invalid {
        let expected = format!("a value that can be stored: {why}").into();
        Invalid::new("value", Problem::Malformed { expected })
    }
}

impl ser::Error for Unfit {
    fn custom<T: Display>(why: T) -> Self {
        Self::Invalid(Self::problem(why))
    }
}

/// Gathers fields.
#[derive(Default)]
struct Gather {
    fields: Fields,
    name: Option<Name>,
}

impl Gather {
    fn add<T: Serialize + ?Sized>(&mut self, name: Name, value: &T) -> Result<(), Unfit> {
        let named = |invalid: Invalid| Invalid::new(format!("fields.{name}"), invalid.problem);
        let bytes = match value.serialize(Plain) {
            Err(Unfit::Not) => {
                let json = json::write(value);
                Some(json.map_err(|expected| named(Unfit::problem(expected)))?)
            }
            Err(Unfit::Invalid(invalid)) => return Err(named(invalid).into()),
            Ok(bytes) => bytes,
        };
        if let Some(bytes) = bytes {
            self.fields.insert(name, bytes);
        }
        Ok(())
    }
}

impl SerializeStruct for Gather {
    type Ok = Fields;
    type Error = Unfit;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unfit> {
        self.add(Name::for_field("field", name)?, value)
    }

    fn end(self) -> Result<Fields, Unfit> {
        Ok(self.fields)
    }
}

impl SerializeMap for Gather {
    type Ok = Fields;
    type Error = Unfit;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unfit> {
        let key = key.serialize(Plain)?.ok_or(Unfit::Not)?;
        let key = std::str::from_utf8(&key).map_err(|_| Unfit::Not)?;
        self.name = Some(Name::for_field("field", key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        let name = self.name.take().ok_or(Unfit::Not)?;
        self.add(name, value)
    }

    fn end(self) -> Result<Fields, Unfit> {
        Ok(self.fields)
    }
}

/// What is alike in both serializers: methods that take one value, and those that begin a compound.
macro_rules! each {
    ($method:ident: $($name:ident($type:ty)),+) => {
        $(fn $name(self, value: $type) -> Result<Self::Ok, Unfit> { $method(value) })+
    };
}
macro_rules! not {
    (types $($type:ident),+) => { $(type $type = Impossible<Self::Ok, Unfit>;)+ };
    ($($name:ident($($type:ty),*) -> $ok:ident),+ $(,)?) => {
        $(fn $name(self, $(_: $type),*) -> Result<Self::$ok, Unfit> { Err(Unfit::Not) })+
    };
    (generic $($name:ident($($type:ty),*)),+ $(,)?) => {
        $(fn $name<T: Serialize + ?Sized>(self, $(_: $type,)* _: &T) -> Result<Self::Ok, Unfit> {
            Err(Unfit::Not)
        })+
    };
}

/// Takes a struct or a map.
struct Whole;

fn refuse<T>(_: T) -> Result<Fields, Unfit> {
    Err(Unfit::Not)
}

impl Serializer for Whole {
    type Ok = Fields;
    type Error = Unfit;
    type SerializeStruct = Gather;
    type SerializeMap = Gather;
    not!(types SerializeSeq, SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, SerializeStructVariant);

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Gather, Unfit> {
        Ok(Gather::default())
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Gather, Unfit> {
        Ok(Gather::default())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Fields, Unfit> {
        value.serialize(self)
    }

    each!(refuse: serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32),
        serialize_i64(i64), serialize_u8(u8), serialize_u16(u16), serialize_u32(u32),
        serialize_u64(u64), serialize_f32(f32), serialize_f64(f64), serialize_char(char),
        serialize_str(&str), serialize_bytes(&[u8]), serialize_unit_struct(&'static str));
    not!(
        serialize_none() -> Ok,
        serialize_unit() -> Ok,
        serialize_unit_variant(&'static str, u32, &'static str) -> Ok,
        serialize_seq(Option<usize>) -> SerializeSeq,
        serialize_tuple(usize) -> SerializeTuple,
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant,
    );
    not!(generic serialize_some(), serialize_newtype_variant(&'static str, u32, &'static str));
}

/// Takes what is not stored as JSON; `None`: the field is not there.
struct Plain;

fn written(value: impl Display) -> Result<Option<Bytes>, Unfit> {
    Ok(Some(value.to_string().into()))
}

/// Shown so that reading it gives the same number; JSON has no other numbers.
fn float(value: f64, shown: String) -> Result<Option<Bytes>, Unfit> {
    match value.is_finite() {
        true => Ok(Some(shown.into())),
        false => Err(ser::Error::custom("a number that is finite")),
    }
}

impl Serializer for Plain {
    type Ok = Option<Bytes>;
    type Error = Unfit;
    not!(types SerializeSeq, SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
        SerializeMap, SerializeStruct, SerializeStructVariant);

    each!(written: serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32),
        serialize_i64(i64), serialize_i128(i128), serialize_u8(u8), serialize_u16(u16),
        serialize_u32(u32), serialize_u64(u64), serialize_u128(u128), serialize_char(char),
        serialize_str(&str));

    fn serialize_f32(self, value: f32) -> Result<Self::Ok, Unfit> {
        float(value.into(), format!("{value:?}"))
    }

    fn serialize_f64(self, value: f64) -> Result<Self::Ok, Unfit> {
        float(value, format!("{value:?}"))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Self::Ok, Unfit> {
        Ok(Some(Bytes::copy_from_slice(value)))
    }

    fn serialize_none(self) -> Result<Self::Ok, Unfit> {
        Ok(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, Unfit> {
        value.serialize(self)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Self::Ok, Unfit> {
        written(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Self::Ok, Unfit> {
        value.serialize(self)
    }

    not!(
        serialize_unit() -> Ok,
        serialize_unit_struct(&'static str) -> Ok,
        serialize_seq(Option<usize>) -> SerializeSeq,
        serialize_tuple(usize) -> SerializeTuple,
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant,
        serialize_map(Option<usize>) -> SerializeMap,
        serialize_struct(&'static str, usize) -> SerializeStruct,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant,
    );
    not!(generic serialize_newtype_variant(&'static str, u32, &'static str));
}
