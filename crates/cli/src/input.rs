//! What people write on the command line, read.

use std::io::Read;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use plimsoll::limits::DURATION_MAX;
use plimsoll::log::Level;
use plimsoll::task::Status;
use plimsoll::{IdempotencyKey, Name, Result, TaskId, Tasks, Timestamp};

use crate::exit::{CliError, Outcome};

/// A time like `30s`, `1h30m` or `2d`; a number alone is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let days_are_24_hours = jiff::SpanRelativeTo::days_are_24_hours();
    let seconds = text.parse().ok().map(Duration::from_secs);
    let spelled = || {
        let span = text.parse::<jiff::Span>().ok()?;
        let duration = span.to_duration(days_are_24_hours).ok()?;
        Duration::try_from(duration).ok()
    };
    match seconds.or_else(spelled) {
        Some(duration) if duration <= DURATION_MAX => Ok(duration),
        Some(_) => Err("must not be longer than a hundred years".into()),
        None => Err("expected a time like 30s, 5m, 1h30m or 2d".into()),
    }
}

/// A moment like `2030-01-31T08:00:00Z`.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let moment = text.parse::<jiff::Timestamp>().ok();
    let moment = moment.and_then(|at| Timestamp::from_micros(at.as_microsecond()).ok());
    moment
        .ok_or_else(|| "expected a moment like 2030-01-31T08:00:00Z or 2030-01-31T09:00+01".into())
}

/// A moment, or how long ago it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    At(Timestamp),
    Ago(Duration),
}

impl Past {
    pub(crate) fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Ago(duration) => now.saturating_minus(duration),
        }
    }
}

/// A moment, or how long ago it was: `2h`.
pub(crate) fn past(text: &str) -> Result<Past, String> {
    let ago = duration(text).map(Past::Ago);
    let at = || moment(text).map(Past::At);
    let expected = "expected a time ago like 2h, or a moment like 2030-01-31T08:00:00Z";
    ago.or_else(|_| at()).map_err(|_| expected.into())
}

/// A label: `name=value`.
pub(crate) fn label(text: &str) -> Result<(Name, Name), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let name = Name::for_field("name", name).map_err(|invalid| invalid.to_string())?;
    let value = Name::for_field("value", value).map_err(|invalid| invalid.to_string())?;
    Ok((name, value))
}

/// The word for a status.
pub(crate) fn status() -> impl TypedValueParser<Value = Status> {
    let words = PossibleValuesParser::new(Status::ALL.map(Status::as_str));
    words.try_map(|word| {
        let mut all = Status::ALL.into_iter();
        all.find(|status| status.as_str() == word)
            .ok_or("expected a status")
    })
}

/// The word for a level of a log.
pub(crate) fn level() -> impl TypedValueParser<Value = Level> {
    let words = PossibleValuesParser::new(Level::ALL.map(Level::as_str));
    words.try_map(|word| Level::of(&word).ok_or("expected a level"))
}

/// A task by its id, or the one that a key was last given to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Id(TaskId),
    Key(IdempotencyKey),
}

/// `ID` or `key:KEY`.
pub(crate) fn which(text: &str) -> Result<Which, String> {
    match text.strip_prefix("key:") {
        Some(key) => {
            let key = IdempotencyKey::new(key).map_err(|invalid| invalid.to_string())?;
            Ok(Which::Key(key))
        }
        None => {
            let expected = |_| "expected the id of a task (a UUID), or key:KEY".into();
            TaskId::parse(text).map(Which::Id).map_err(expected)
        }
    }
}

impl Which {
    pub(crate) async fn id(&self, tasks: &Tasks) -> Result<TaskId> {
        match self {
            Self::Id(id) => Ok(*id),
            Self::Key(key) => Ok(tasks.get_by_key(key).await?.id()),
        }
    }

    pub(crate) async fn task(&self, tasks: &Tasks) -> Result<plimsoll::task::Task> {
        match self {
            Self::Id(id) => tasks.get(*id).await,
            Self::Key(key) => tasks.get_by_key(key).await,
        }
    }
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Key(key) => write!(f, "key:{key}"),
        }
    }
}

/// A payload: the argument itself, `@FILE`, or `-` for standard input. No more than `max` bytes of
/// it are read, and one more, so that what is too long is told without being read whole.
pub(crate) fn payload(argument: &str, max: usize) -> Outcome<Vec<u8>> {
    let read = |what: &str, from: &mut dyn Read| {
        let mut bytes = Vec::new();
        let most = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
        match from.take(most).read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(CliError::Input {
                what: what.into(),
                error,
            }),
        }
    };
    match (argument, argument.strip_prefix('@')) {
        ("-", _) => read("standard input", &mut std::io::stdin().lock()),
        (_, Some(path)) => match std::fs::File::open(path) {
            Ok(mut file) => read(path, &mut file),
            Err(error) => Err(CliError::Input {
                what: path.into(),
                error,
            }),
        },
        (text, None) => Ok(text.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_write_them() {
        for (text, millis) in [
            ("30s", 30_000),
            ("30", 30_000),
            ("0", 0),
            ("500ms", 500),
            ("1.5m", 90_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-5s", "soon", "1 fortnight", "1e9", "1.2.3s", "40000d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_moment_needs_its_offset() {
        let at = moment("2030-01-31T08:00:00Z").expect("a moment");
        assert_eq!(moment("2030-01-31T09:00+01"), Ok(at));
        assert!(moment("2030-01-31T08:00:00").is_err());
        assert!(moment("1950-01-01T00:00:00Z").is_err());
        assert_eq!(past("2030-01-31T08:00:00Z"), Ok(Past::At(at)));
        assert_eq!(past("2h"), Ok(Past::Ago(Duration::from_secs(7_200))));
    }

    #[test]
    fn a_task_is_named_by_id_or_key() {
        let id = TaskId::from_u128(7);
        assert_eq!(which(&id.to_string()), Ok(Which::Id(id)));
        let key = IdempotencyKey::new("a:b").expect("a key");
        assert_eq!(which("key:a:b"), Ok(Which::Key(key)));
        assert!(which("key:").is_err());
        assert!(which("7").is_err());
    }

    #[test]
    fn a_label_is_a_name_and_a_value() {
        let (name, value) = label("show=a=b").expect("a label");
        assert_eq!((name.as_str(), value.as_str()), ("show", "a=b"));
        assert!(label("show").is_err());
        assert!(label("=x").is_err());
    }
}
