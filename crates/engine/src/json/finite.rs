//! A serializer that refuses numbers that are not finite, and otherwise is another one. `serde_json` writes such numbers as
//! `null`, which is not read as a number again, or is read as `None`.

use std::fmt::Display;

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// A serializer, or what it writes a list, a map, a struct or a variant with.
pub(super) struct Finite<S>(pub(super) S);

/// A value somewhere in another one.
struct Within<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for Within<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Finite(serializer))
    }
}

fn infinite<E: Error>() -> E {
    E::custom("a number must be finite")
}

macro_rules! finite {
    ($($name:ident($type:ty)),+) => {
        $(fn $name(self, value: $type) -> Result<S::Ok, S::Error> {
            match value.is_finite() {
                true => self.0.$name(value),
                false => Err(infinite()),
            }
        })+
    };
}
/// Methods that get no value to look into.
macro_rules! same {
    ($($name:ident($($arg:ident: $type:ty),*)),+ $(,)?) => {
        $(fn $name(self, $($arg: $type),*) -> Result<S::Ok, S::Error> { self.0.$name($($arg),*) })+
    };
}
/// Methods that get a value after what they are told of it.
macro_rules! within {
    ($($name:ident($($arg:ident: $type:ty),*)),+ $(,)?) => {
        $(fn $name<T: Serialize + ?Sized>(self, $($arg: $type,)* value: &T) -> Result<S::Ok, S::Error> {
            self.0.$name($($arg,)* &Within(value))
        })+
    };
}
/// Methods that begin what has values in it.
macro_rules! begins {
    ($($name:ident($($arg:ident: $type:ty),*) -> $begun:ident),+ $(,)?) => {
        $(type $begun = Finite<S::$begun>;)+
        $(fn $name(self, $($arg: $type),*) -> Result<Self::$begun, S::Error> {
            self.0.$name($($arg),*).map(Finite)
        })+
    };
}

impl<S: Serializer> Serializer for Finite<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    finite!(serialize_f32(f32), serialize_f64(f64));
    same!(
        serialize_bool(value: bool),
        serialize_i8(value: i8),
        serialize_i16(value: i16),
        serialize_i32(value: i32),
        serialize_i64(value: i64),
        serialize_i128(value: i128),
        serialize_u8(value: u8),
        serialize_u16(value: u16),
        serialize_u32(value: u32),
        serialize_u64(value: u64),
        serialize_u128(value: u128),
        serialize_char(value: char),
        serialize_str(value: &str),
        serialize_bytes(value: &[u8]),
        serialize_none(),
        serialize_unit(),
        serialize_unit_struct(name: &'static str),
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str),
    );
    within!(
        serialize_some(),
        serialize_newtype_struct(name: &'static str),
        serialize_newtype_variant(name: &'static str, index: u32, variant: &'static str),
    );
    begins!(
        serialize_seq(len: Option<usize>) -> SerializeSeq,
        serialize_tuple(len: usize) -> SerializeTuple,
        serialize_tuple_struct(name: &'static str, len: usize) -> SerializeTupleStruct,
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeTupleVariant,
        serialize_map(len: Option<usize>) -> SerializeMap,
        serialize_struct(name: &'static str, len: usize) -> SerializeStruct,
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeStructVariant,
    );

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! compound {
    ($($trait:ident: $($name:ident($($arg:ident: $type:ty),*)),+;)+) => {
        $(impl<S: $trait> $trait for Finite<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            $(fn $name<T: Serialize + ?Sized>(&mut self, $($arg: $type,)* value: &T) -> Result<(), S::Error> {
                self.0.$name($($arg,)* &Within(value))
            })+

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })+
    };
}

compound! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeMap: serialize_key(), serialize_value();
    SerializeStruct: serialize_field(name: &'static str);
    SerializeStructVariant: serialize_field(name: &'static str);
}
