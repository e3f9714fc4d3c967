//! JSON text, written anew without being read into values: every digit and the order of fields stay.

use serde::de::IgnoredAny;

/// On one line, if it is JSON.
pub(crate) fn compact(text: &str) -> Option<String> {
    is_json(text).then(|| rewritten(text, false))
}

/// With one value on each line, if it is JSON.
pub(crate) fn pretty(text: &str) -> Option<String> {
    is_json(text).then(|| rewritten(text, true))
}

pub(crate) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Bytes as digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text must be JSON.
fn rewritten(text: &str, pretty: bool) -> String {
    let (mut out, mut depth) = (String::with_capacity(text.len()), 0usize);
    let mut rest = text;
    let line = |out: &mut String, depth: usize| {
        if pretty {
            out.push('\n');
            out.push_str(&"  ".repeat(depth));
        }
    };
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '"' => {
                let end = end_of_string(rest);
                out.push('"');
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            '{' | '[' => {
                out.push(c);
                let inner = rest.trim_start();
                if inner.starts_with(['}', ']']) {
                    out.push_str(&inner[..1]);
                    rest = &inner[1..];
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(if pretty { ": " } else { ":" }),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

/// Where a string ends whose opening quote was taken: behind its closing one.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            '"' if !escaped => return index + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#" { "b" : [ 1.00, {}, [ ] ,{"x y": "a, \" b\\"} ],
        "a": null } "#;

    #[test]
    fn json_is_written_on_one_line() {
        let expected = r#"{"b":[1.00,{},[],{"x y":"a, \" b\\"}],"a":null}"#;
        assert_eq!(compact(TEXT).as_deref(), Some(expected));
        assert_eq!(compact("clip-7"), None);
        assert_eq!(compact(""), None);
    }

    #[test]
    fn json_is_written_for_people() {
        let expected = r#"{
  "b": [
    1.00,
    {},
    [],
    {
      "x y": "a, \" b\\"
    }
  ],
  "a": null
}"#;
        assert_eq!(pretty(TEXT).as_deref(), Some(expected));
        assert_eq!(pretty("7").as_deref(), Some("7"));
    }
}
