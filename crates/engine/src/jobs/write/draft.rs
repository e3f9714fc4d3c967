//! A state that was checked and can be written.

use bytes::Bytes;
use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::{Ids, Key, Limits, Name};

use crate::jobs::NewState;
use crate::jobs::stored::Keys;
use crate::json;

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
        if let Some(job) = state.job.as_ref().filter(|job| **job != keys.name) {
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
        let payload = written(&state)?;
        if too_long == TooLong::Cut {
            let left = room(limits).saturating_sub(payload.as_ref().map_or(0, Bytes::len));
            cut(&mut state.message, text_max(limits).min(left));
        }
        fits(&state.message, payload.as_ref(), limits)?;
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
            payload,
            schema_version: state.schema_version,
        })
    }

    /// About how many bytes it takes, with an eighth of what the rest may take.
    pub(crate) fn size(&self) -> usize {
        let payload = self.payload.as_ref().map_or(0, Bytes::len);
        self.message.len() + payload + REST_BYTES_MAX / 8
    }
}

impl NewState {
    /// Whether it can be stored as it is, before there is a manager to write it: what is too large is `Invalid`.
    pub fn check(&self, limits: &Limits) -> Result<(), Invalid> {
        fits(&self.message, written(self)?.as_ref(), limits)
    }
}

/// The payload as JSON.
fn written(state: &NewState) -> Result<Option<Bytes>, Invalid> {
    let payload = state.payload.as_ref().map(json::write).transpose();
    payload.map_err(|expected| {
        let expected = expected.into();
        Invalid::new("payload", Problem::Malformed { expected })
    })
}

/// What a message and a payload take together, at most.
fn room(limits: &Limits) -> usize {
    limits.record_bytes_max.saturating_sub(REST_BYTES_MAX)
}

fn text_max(limits: &Limits) -> usize {
    limits.text_bytes_max.min(room(limits))
}

fn fits(message: &str, payload: Option<&Bytes>, limits: &Limits) -> Result<(), Invalid> {
    let payload_max = (room(limits).saturating_sub(message.len())).min(limits.value_bytes_max);
    sized("message", message.len(), text_max(limits))?;
    sized("payload", payload.map_or(0, Bytes::len), payload_max)
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
