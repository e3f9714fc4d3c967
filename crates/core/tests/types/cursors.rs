//! Cursors, and what they are bound to.

use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::log::Level;
use plimsoll_core::store::{Cursor, List, Logs, Range, Scan, Selector};
use plimsoll_core::task::{Lane, Status};
use plimsoll_core::{GroupId, Name, Prefix};

use crate::{Checked, id};

fn number(place: &str) -> Option<u64> {
    place.parse().ok()
}

#[test]
fn a_cursor_is_read_for_the_question_it_was_answered_to_and_for_no_other() {
    let refused = || {
        Err(Invalid::new(
            "cursor",
            Problem::Malformed {
                expected: "a cursor that was answered for the same question".into(),
            },
        ))
    };
    let cursor = Cursor::new("scan a", 7);
    assert_eq!(Cursor::place(None, "scan a", number), Ok(None));
    assert_eq!(Cursor::place(Some(&cursor), "scan a", number), Ok(Some(7)));
    assert_eq!(Cursor::place(Some(&cursor), "scan b", number), refused());
    let sent = Cursor::from_text(cursor.as_str());
    assert_eq!(sent, cursor);
    let text = cursor.as_str().to_owned();
    for bad in [
        String::new(),
        "7".into(),
        ":7".into(),
        text.replace(':', ""),
        text.replace(":7", ":"),
        text.replace(":7", ":seven"),
        format!("x{text}"),
    ] {
        let found = Cursor::place(Some(&Cursor::from_text(bad.clone())), "scan a", number);
        assert_eq!(found, refused(), "{bad:?}");
    }
}

#[test]
fn a_place_in_a_cursor_may_be_any_text() {
    for place in ["", ":", "a:b", "\u{1f6a2}", "\n"] {
        let cursor = Cursor::new("scan a", place);
        let found = Cursor::place(Some(&cursor), "scan a", |place| Some(place.to_owned()));
        assert_eq!(found, Ok(Some(place.to_owned())));
    }
}

#[test]
fn every_question_has_a_scope_of_its_own_that_no_cursor_or_limit_changes() -> Checked {
    let scan = |text| Ok::<_, Invalid>(Scan::new(Prefix::new(text)?, 1));
    let range = |field| Ok::<_, Invalid>(Range::new(Name::new(field)?));
    let list = |selector| List::new(selector, 1);
    let lane = Lane::new("a", "b")?;
    let logs = |number| Logs {
        task: id(number),
        level: Level::Debug,
        cursor: None,
        limit: 1,
    };
    let scopes = [
        scan("")?.scope(),
        scan("a")?.scope(),
        scan("ab")?.scope(),
        scan("a")?.range(range("n")?).scope(),
        scan("b")?.range(range("n")?).scope(),
        scan("a")?.range(range("m")?).scope(),
        scan("a")?.range(range("n")?.from(1)).scope(),
        scan("a")?.range(range("n")?.before(1)).scope(),
        scan("a")?.range(range("n")?.from(1).before(1)).scope(),
        list(Selector::Lane(lane.clone(), Status::Pending)).scope(),
        list(Selector::Lane(lane, Status::Failed)).scope(),
        list(Selector::Lane(Lane::new("a/b", "b")?, Status::Failed)).scope(),
        list(Selector::Group(GroupId::new("a")?)).scope(),
        list(Selector::Owner(Name::new("a")?)).scope(),
        list(Selector::Key(Prefix::new("a")?)).scope(),
        logs(1).scope(),
        logs(2).scope(),
    ];
    for (n, scope) in scopes.iter().enumerate() {
        assert!(!scopes[..n].contains(scope), "{scope} twice");
    }
    let later = Scan {
        cursor: Some(Cursor::new("scan a", 7)),
        limit: 9,
        ..scan("a")?
    };
    assert_eq!(later.scope(), scan("a")?.scope());
    Ok(())
}
