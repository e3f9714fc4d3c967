//! What is a name, and what is wrong with what is none.

use plimsoll_core::error::Problem;
use plimsoll_core::task::{Lane, Priority};
use plimsoll_core::{GroupId, IdempotencyKey, Key, Name, Namespace, Prefix, TaskId, Timestamp};

/// What is wrong with this text, as a name of this type; `None`: nothing.
type Judge = fn(&str) -> Option<Problem>;

fn judges() -> [(&'static str, usize, usize, Judge); 6] {
    [
        ("key", 1, 512, |text| {
            Key::new(text).err().map(|e| e.problem)
        }),
        ("prefix", 0, 512, |text| {
            Prefix::new(text).err().map(|e| e.problem)
        }),
        ("name", 1, 128, |text| {
            Name::new(text).err().map(|e| e.problem)
        }),
        ("idempotency_key", 1, 512, |text| {
            IdempotencyKey::new(text).err().map(|e| e.problem)
        }),
        ("group", 1, 512, |text| {
            GroupId::new(text).err().map(|e| e.problem)
        }),
        ("namespace", 1, 64, |text| {
            Namespace::new(text).err().map(|e| e.problem)
        }),
    ]
}

#[test]
fn a_name_is_limited_in_bytes() {
    for (what, min, max, judge) in judges() {
        let too_long = Some(Problem::TooLong {
            bytes: max + 1,
            max,
        });
        let empty = (min > 0).then_some(Problem::Empty);
        assert_eq!(judge(""), empty, "{what}");
        assert_eq!(judge("x"), None, "{what}");
        assert_eq!(judge(&"x".repeat(max)), None, "{what}");
        assert_eq!(judge(&"x".repeat(max + 1)), too_long, "{what}");
        assert_eq!(judge(&("é".repeat(max / 2) + "x")), too_long, "{what}");
        let huge = "x".repeat(1 << 20);
        let bytes = huge.len();
        assert_eq!(
            judge(&huge),
            Some(Problem::TooLong { bytes, max }),
            "{what}"
        );
    }
}

#[test]
fn a_name_holds_every_character_but_nul() {
    let odd = [
        "é", "🚢", "'; --", "a b", ".", "..", "*", ">", "%", "\n", "\u{feff}", "\u{202e}",
    ];
    for (what, _, max, judge) in judges() {
        for nul in ["\0", "a\0b", "a\0"] {
            assert_eq!(judge(nul), Some(Problem::Nul), "{what}");
        }
        let plain = what == "namespace";
        for text in odd {
            assert_eq!(judge(text).is_some(), plain, "{what} {text:?}");
        }
        let full = "🚢".repeat(max / 4);
        assert_eq!(judge(&full).is_some(), plain, "{what}");
    }
    assert!(Namespace::new("aZ09_-").is_ok());
}

#[test]
fn an_error_blames_the_input_that_was_meant() {
    let blamed = [
        Key::new("").err(),
        Prefix::new("\0").err(),
        Name::new("").err(),
        IdempotencyKey::new("").err(),
        GroupId::new("").err(),
        Namespace::new("").err(),
        Name::for_field("stage", "").err(),
        Lane::new("", "kind").err(),
        Lane::new("queue", "").err(),
        TaskId::parse("seven").err(),
        Priority::new(11).err(),
        Timestamp::from_micros(-1).err(),
    ];
    let fields = blamed.map(|error| error.map(|error| error.field));
    let expected = [
        "key",
        "prefix",
        "name",
        "idempotency_key",
        "group",
        "namespace",
        "stage",
        "queue",
        "kind",
        "task",
        "priority",
        "timestamp",
    ];
    assert_eq!(fields, expected.map(|field| Some(field.to_owned())));
}
