//! Statements that are sent as one.
//!
//! The server ends every statement by itself: it writes its answer to the network, which wakes whoever waits for it,
//! and begins the next one with another look at what is visible. A small transaction is mostly that. So parts that
//! write and have nothing to say become one statement with the call that ends them; and where that is the whole
//! transaction, it needs neither `BEGIN` nor `COMMIT`.

use std::ops::Range;

use tokio_postgres::types::Type;

use crate::call::{Call, Part, Role};
use crate::statement::sent;

/// How a call begins that ends others.
const SELECT: &str = "SELECT ";

/// What is sent at once, and answered once: one call, or several that became one.
#[derive(Debug)]
pub(crate) struct Message {
    /// The calls that it stands for.
    pub(crate) calls: Range<usize>,
    /// Those of them that are written in it. The rows are those of the last one: the values that it selects come last
    /// in them.
    pub(crate) sent: Range<usize>,
}

/// The messages for calls, in order. `whole`: a transaction of one statement may be sent without its begin and end.
pub(crate) fn messages(calls: &[Call], whole: bool) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    let mut from = 0;
    while from < calls.len() {
        let is_part = |call: &&Call| matches!(call.role, Role::Part(_));
        let parts = calls[from..].iter().take_while(is_part).count();
        let last = (from + parts < calls.len()).then(|| &calls[from + parts]);
        let ends = last.is_some_and(|call| matches!(call.role, Role::Last));
        let to = from + if ends { parts + 1 } else { 1 };
        messages.push(Message {
            calls: from..to,
            sent: from..to,
        });
        from = to;
    }
    if whole {
        fold(calls, &mut messages);
    }
    messages
}

/// Leaves `BEGIN` and `COMMIT` out, where there is one statement in between.
fn fold(calls: &[Call], messages: &mut Vec<Message>) {
    let is =
        |message: &Message, what: fn(&Call) -> bool| calls[message.calls.clone()].iter().all(what);
    let begins = messages.windows(3).position(|three| {
        is(&three[0], Call::begins)
            && matches!(calls[three[1].sent.end - 1].role, Role::Last)
            && is(&three[2], Call::commits)
    });
    if let Some(at) = begins {
        let sent = messages[at + 1].sent.clone();
        let calls = messages[at].calls.start..messages[at + 2].calls.end;
        messages.splice(at..at + 3, [Message { calls, sent }]);
    }
}

/// The text of calls that became one, as it is sent: parts, and the one that ends them.
pub(crate) fn text(calls: &[Call]) -> String {
    let Some((last, parts)) = calls.split_last().filter(|(_, parts)| !parts.is_empty()) else {
        return calls.iter().map(|call| sent(call.sql.text)).collect();
    };
    let (mut with, mut select) = (String::new(), String::new());
    let mut before = 0;
    for (n, call) in parts.iter().enumerate() {
        let Role::Part(Part {
            writes, expects, ..
        }) = call.role
        else {
            continue;
        };
        let comma = if n > 0 { ", " } else { "" };
        with += &format!("{comma}part{n} AS ({})", renumbered(&sent(writes), before));
        // Values are selected from left to right, and each asks for the rows of its part: so the parts are carried
        // out in order, and all of them before what the last call selects. A position of the history must not be
        // taken before there is nothing left to wait for.
        let count = format!("(SELECT count(*) FROM part{n})");
        select += &match expects {
            Some(expected) => {
                let expected = renumbered(expected, before);
                format!("plimsoll.expect({count}, {expected}), ")
            }
            None => format!("{count}, "),
        };
        before += call.sql.types.len();
    }
    let last = renumbered(&sent(last.sql.text), before);
    let values = last.strip_prefix(SELECT).unwrap_or(&last);
    format!("WITH {with} {SELECT}{select}{values}")
}

/// The types of their parameters.
pub(crate) fn types(calls: &[Call]) -> Vec<Type> {
    let types = calls.iter().flat_map(|call| call.sql.types);
    types.cloned().collect()
}

/// A statement whose parameters come after so many others.
fn renumbered(text: &str, before: usize) -> String {
    let mut parts = text.split('$');
    let mut renumbered: String = parts.next().unwrap_or_default().into();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        match number.parse::<usize>() {
            Ok(number) => renumbered += &format!("${}{rest}", number + before),
            Err(_) => renumbered += &format!("${part}"),
        }
    }
    renumbered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{BEGIN, COMMIT, Sql, part};

    static WRITE: Part = part!(
        "INSERT INTO plimsoll.a SELECT $1, $2",
        &[Type::INT4, Type::TEXT]
    );
    static CHECK: Part = part!(
        "DELETE FROM plimsoll.b WHERE c = ANY($1) RETURNING 1",
        expects "cardinality($1)",
        &[Type::INT4_ARRAY]
    );
    static READ: Sql = Sql {
        text: "SELECT 1 FROM plimsoll.a",
        types: &[],
    };
    static LAST: Sql = Sql {
        text: "SELECT plimsoll.append($1, $2)",
        types: &[Type::INT8, Type::BYTEA],
    };

    /// b begin, w write, c check, r read, l last, e commit.
    fn calls(letters: &str) -> Vec<Call> {
        let call = |letter| match letter {
            'b' => (&BEGIN).into(),
            'w' => Call::part(&WRITE, Vec::new()),
            'c' => Call::part(&CHECK, Vec::new()),
            'r' => (&READ).into(),
            'l' => Call::last(&LAST, Vec::new()),
            _ => (&COMMIT).into(),
        };
        letters.chars().map(call).collect()
    }

    /// The calls of each message, those that are written in it in capitals.
    fn cut(letters: &str, whole: bool) -> String {
        let messages = messages(&calls(letters), whole).into_iter();
        let written = |message: Message| {
            let one = |place: usize| {
                let letter = letters[place..=place].to_owned();
                match message.sent.contains(&place) {
                    true => letter.to_uppercase(),
                    false => letter,
                }
            };
            message.calls.clone().map(one).collect::<String>()
        };
        messages.map(written).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn parts_join_the_call_that_ends_them() {
        assert_eq!(cut("", true), "");
        assert_eq!(cut("wcl", false), "WCL");
        assert_eq!(cut("bwcle", false), "B WCL E");
        assert_eq!(cut("bwcler", true), "bWCLe R");
        assert_eq!(cut("ble", true), "bLe");
        assert_eq!(cut("cwlebwle", false), "CWL E B WL E");
    }

    #[test]
    fn what_is_between_keeps_them_apart() {
        assert_eq!(cut("bwrwle", true), "B W R WL E");
        assert_eq!(cut("brwle", true), "B R WL E");
        assert_eq!(cut("bwlre", true), "B WL R E");
        assert_eq!(cut("bwce", true), "B W C E");
        assert_eq!(cut("wle", true), "WL E", "of a transaction that has begun");
        assert_eq!(cut("be", true), "B E");
        assert_eq!(cut("bre", true), "B R E");
    }

    #[test]
    fn one_text_has_the_parameters_of_all_of_them() {
        assert_eq!(text(&calls("r")), READ.text);
        assert_eq!(text(&calls("l")), LAST.text);
        assert_eq!(
            text(&calls("cwl")),
            "WITH part0 AS (DELETE FROM plimsoll.b WHERE c = ANY($1) RETURNING 1), \
             part1 AS (INSERT INTO plimsoll.a SELECT $2, $3 RETURNING 1) \
             SELECT plimsoll.expect((SELECT count(*) FROM part0), cardinality($1)), \
             (SELECT count(*) FROM part1), plimsoll.append($4, $5)"
        );
        let all = [
            Type::INT4_ARRAY,
            Type::INT4,
            Type::TEXT,
            Type::INT8,
            Type::BYTEA,
        ];
        assert_eq!(types(&calls("cwl")), all);
        assert_eq!(renumbered("$9 a$$10 '$' $", 2), "$11 a$$12 '$' $");
    }
}
