//! A state that was checked and can be written.

use bytes::Bytes;
use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::{Ids, Key, Limits, Name};
use serde_json::json;

use crate::jobs::NewState;
use crate::jobs::stored::Keys;

/// What the fields of a state take at most, but for its message and its payload: mostly the events that
/// are remembered.
const REST_BYTES_MAX: usize = 16 * 1024;

/// What a message ends with that was cut.
const CUT: &str = "…";

/// What becomes of a message that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooLong {
    /// The state is refused.
    Refused,
    /// It is cut: that something failed must be known, however much there is to say about it.
    Cut,
}

/// A state that can be written.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) key: Key,
    pub(crate) tag: Name,
    pub(crate) status: i32,
    pub(crate) message: String,
    pub(crate) event_id: Name,
    /// As JSON.
    pub(crate) payload: Option<Bytes>,
    pub(crate) schema_version: u32,
}

impl Draft {
    /// Checks that a state is one of this partition, and of a size that can be stored.
    pub(crate) fn check(
        mut state: NewState,
        too_long: TooLong,
        keys: &Keys,
        partition: u32,
        limits: &Limits,
        ids: &Ids,
    ) -> Result<Self, Invalid> {
        if let Some(job) = state.job.filter(|job| *job != keys.name) {
            let why = format!("is {job}, but the manager's is {}", keys.name);
            return Err(Invalid::new("job", Problem::Contradiction(why.into())));
        }
        if let Some(other) = state.partition.filter(|other| *other != partition) {
            let why = format!("is {other}, but the manager's is {partition}");
            return Err(Invalid::new(
                "partition",
                Problem::Contradiction(why.into()),
            ));
        }
        let payload = state.payload.map(|payload| json!(payload).to_string());
        let room = limits.record_bytes_max.saturating_sub(REST_BYTES_MAX);
        let text_max = limits.text_bytes_max.min(room);
        let payload_bytes = payload.as_ref().map_or(0, String::len);
        if too_long == TooLong::Cut {
            cut(
                &mut state.message,
                text_max.min(room.saturating_sub(payload_bytes)),
            );
        }
        let payload_max = (room.saturating_sub(state.message.len())).min(limits.value_bytes_max);
        sized("message", state.message.len(), text_max)?;
        sized("payload", payload_bytes, payload_max)?;
        let event_id = match state.event_id {
            Some(id) => id,
            None => Name::for_field("event_id", ids.request().to_string())?,
        };
        Ok(Self {
            key: keys.state(partition, &state.tag)?,
            tag: state.tag,
            status: state.status,
            message: state.message,
            event_id,
            payload: payload.map(Bytes::from),
            schema_version: state.schema_version,
        })
    }

    /// About how many bytes it takes, with an eighth of what the rest may take.
    pub(crate) fn size(&self) -> usize {
        let payload = self.payload.as_ref().map_or(0, Bytes::len);
        self.message.len() + payload + REST_BYTES_MAX / 8
    }
}

/// Cuts a text at the end of a character, so that it has at most this many bytes and ends with a mark.
fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        let mark = if max < CUT.len() { "" } else { CUT };
        text.truncate(text.floor_char_boundary(max - mark.len()));
        text.push_str(mark);
    }
}

fn sized(field: &str, bytes: usize, max: usize) -> Result<(), Invalid> {
    match bytes > max {
        true => Err(Invalid::new(field, Problem::TooLong { bytes, max })),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_the_end_of_a_character_and_says_so() {
        for (text, max, expected) in [
            ("", 0, ""),
            ("abcd", 4, "abcd"),
            ("abcde", 4, "a…"),
            ("äöü", 6, "äöü"),
            ("äöüa", 6, "ä…"),
            ("🔴 a", 5, "…"),
            ("abcde", 3, "…"),
            ("abcde", 2, "ab"),
            ("ä", 1, ""),
        ] {
            let mut text = text.to_owned();
            cut(&mut text, max);
            assert_eq!(text, expected);
        }
    }
}
