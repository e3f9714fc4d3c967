//! Values as JSON that can be read again.

mod finite;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use finite::Finite;

/// How deep lists and objects may be in each other. What is deeper can be written, and would not be read.
const NESTED_MAX: usize = 127;

/// The value as JSON, or what is wrong with it.
pub(crate) fn write(value: &(impl Serialize + ?Sized)) -> Result<Bytes, String> {
    let mut json = Vec::new();
    value
        .serialize(Finite(&mut serde_json::Serializer::new(&mut json)))
        .map_err(wrong)?;
    match nesting(&json) > NESTED_MAX {
        true => Err(format!(
            "lists and objects that are at most {NESTED_MAX} deep in each other"
        )),
        false => Ok(json.into()),
    }
}

/// The value as one that is [written](write) later, or what is wrong with it.
pub(crate) fn value(value: impl Serialize) -> Result<Value, String> {
    (value.serialize(Finite(serde_json::value::Serializer))).map_err(wrong)
}

fn wrong(error: serde_json::Error) -> String {
    format!("a value that JSON can hold: {error}")
}

/// How deep the brackets of a text that is JSON are in each other.
fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!("[{\\\"["), |inner, level| match level % 2 {
            0 => json!([inner]),
            _ => json!({ "in [\"": inner }),
        })
    }

    #[test]
    fn what_is_written_can_be_read_and_nothing_else_is_written() {
        for depth in [0, 1, 2, NESTED_MAX - 1, NESTED_MAX] {
            let json = write(&nested(depth)).unwrap();
            assert_eq!(nesting(&json), depth);
            let read: Value = serde_json::from_slice(&json).unwrap();
            assert_eq!(read, nested(depth));
        }
        let deep = serde_json::to_vec(&nested(NESTED_MAX + 1)).unwrap();
        assert!(serde_json::from_slice::<Value>(&deep).is_err());
        let wrong = write(&nested(NESTED_MAX + 1)).unwrap_err();
        assert!(wrong.contains("at most 127 deep"), "{wrong}");
    }

    #[derive(Serialize)]
    struct Unit;
    #[derive(Serialize)]
    struct Newtype<T>(T);
    #[derive(Serialize)]
    struct Tuple<T>(u8, T);
    #[derive(Serialize)]
    struct Struct<T> {
        field: T,
    }
    #[derive(Serialize)]
    enum Variant<T> {
        Unit,
        Newtype(T),
        Tuple(u8, T),
        Struct { field: T },
    }

    /// One of everything with this in it, and the JSON of all of that.
    fn everything<T: Serialize + Copy>(value: T) -> Vec<Result<Bytes, String>> {
        vec![
            write(&value),
            write(&Some(value)),
            write(&[[value]]),
            write(&vec![value]),
            write(&BTreeMap::from([("key", value)])),
            write(&Newtype(value)),
            write(&Tuple(1, value)),
            write(&Struct { field: value }),
            write(&Variant::Newtype(value)),
            write(&Variant::Tuple(1, value)),
            write(&Variant::Struct { field: value }),
            write(&Struct {
                field: Some(vec![Variant::Struct {
                    field: Newtype(value),
                }]),
            }),
        ]
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused_wherever_it_is() {
        let refused = "a value that JSON can hold: a number must be finite";
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for written in [everything(number), everything(number as f32)].concat() {
                assert_eq!(written, Err(refused.to_owned()));
            }
        }
    }

    #[test]
    fn everything_else_is_written_as_it_always_was() {
        let written: Vec<_> = everything(-0.5).into_iter().map(Result::unwrap).collect();
        let expected = [
            "-0.5",
            "-0.5",
            "[[-0.5]]",
            "[-0.5]",
            r#"{"key":-0.5}"#,
            "-0.5",
            "[1,-0.5]",
            r#"{"field":-0.5}"#,
            r#"{"Newtype":-0.5}"#,
            r#"{"Tuple":[1,-0.5]}"#,
            r#"{"Struct":{"field":-0.5}}"#,
            r#"{"field":[{"Struct":{"field":-0.5}}]}"#,
        ];
        assert_eq!(written, expected);
        let scalars = (
            (
                true,
                'ä',
                "te\"xt",
                Unit,
                (),
                None::<u8>,
                Variant::<u8>::Unit,
            ),
            (i8::MIN, i16::MIN, i32::MIN, i64::MIN, i128::MIN),
            (u8::MAX, u16::MAX, u32::MAX, u64::MAX, u128::MAX),
            (f32::MAX, f64::MIN_POSITIVE, Bytes::from_static(b"\xff")),
            BTreeMap::from([(7, "seven")]),
            // Written as text by what shows itself, and only where people read it.
            (format_args!("{}", 1.5), std::net::Ipv4Addr::LOCALHOST),
        );
        assert_eq!(
            write(&scalars).unwrap(),
            serde_json::to_vec(&scalars).unwrap()
        );
    }

    #[test]
    fn what_is_beside_each_other_is_not_deep() {
        let beside: Vec<Value> = (0..1_000).map(|_| nested(3)).collect();
        assert_eq!(nesting(&write(&beside).unwrap()), 4);
    }
}
