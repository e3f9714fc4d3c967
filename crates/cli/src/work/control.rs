//! The line protocol by which a command says more than its output and exit code can.
//!
//! | line | what it does |
//! |---|---|
//! | `progress 40 copying files` | says how far the task is, in percent and words |
//! | `progress 3/7 copying files` | the same in steps |
//! | `checkpoint TEXT` | keeps the text for the next attempt |
//! | `stage planning` | moves the task to a stage |
//! | `set output_files a.png b.png` | sets an attribute of the task |
//! | `log warn TEXT` | appends a line to the job log |
//! | `retry-after 30s` | when to try again, if the exit code says so |
//! | `submit QUEUE KIND PAYLOAD` | submits a task in the commit that completes this one, if it does |
//! | `submit QUEUE KIND @FILE` | the same with what is in a file in the end; `@@` stands for an `@` |

use std::path::PathBuf;
use std::time::Duration;

use plimsoll::Name;
use plimsoll::log::Level;
use plimsoll::task::{Lane, Progress};

use crate::input::duration;

/// What a command said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Progress(Progress),
    Checkpoint(String),
    Stage(Name),
    Set(Name, String),
    Log(Level, String),
    RetryAfter(Duration),
    Submit(Lane, Payload),
}

/// What a task is to be submitted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    Text(String),
    File(PathBuf),
}

/// Reads a line. Answers what is wrong with it, if it is none of the above.
pub(super) fn parse(line: &str) -> Result<Word, String> {
    let (verb, rest) = word(line);
    match verb {
        "progress" => progress(rest).map(Word::Progress),
        "checkpoint" => Ok(Word::Checkpoint(rest.into())),
        "stage" => name("stage", rest).map(Word::Stage),
        "set" => {
            let (attribute, value) = word(rest);
            Ok(Word::Set(name("attribute", attribute)?, value.into()))
        }
        "log" => {
            let (level, text) = word(rest);
            let level = self::level(level)
                .ok_or_else(|| format!("`{level}` is none of debug, info, warn, error"))?;
            Ok(Word::Log(level, text.into()))
        }
        "retry-after" => duration(rest).map(Word::RetryAfter),
        "submit" => {
            let (queue, rest) = word(rest);
            let (kind, payload) = word(rest);
            let lane = Lane::new(queue, kind).map_err(|invalid| invalid.to_string())?;
            Ok(Word::Submit(lane, self::payload(payload)))
        }
        _ => Err(
            "expected progress, checkpoint, stage, set, log, retry-after or submit as the first \
             word"
                .into(),
        ),
    }
}

/// Whether a line asks for a task, understood or not.
pub(super) fn is_submit(line: &str) -> bool {
    word(line).0 == "submit"
}

fn payload(text: &str) -> Payload {
    match text.strip_prefix('@') {
        Some(rest) if rest.starts_with('@') => Payload::Text(rest.into()),
        Some(path) => Payload::File(path.into()),
        None => Payload::Text(text.into()),
    }
}

/// The level of a line of standard error, by its prefix, and the rest of the line.
pub(super) fn levelled(line: &str) -> (Level, &str) {
    let found = line.split_once(':').and_then(|(prefix, rest)| {
        let level = level(&prefix.to_ascii_lowercase())?;
        Some((level, rest.trim_start()))
    });
    found.unwrap_or((Level::Info, line))
}

/// The first word of a line, and the rest without the space between.
fn word(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (word, rest)
}

fn name(field: &str, text: &str) -> Result<Name, String> {
    Name::for_field(field, text.trim_end()).map_err(|invalid| invalid.to_string())
}

fn level(text: &str) -> Option<Level> {
    match text {
        "warning" => Some(Level::Warn),
        word => Level::of(word),
    }
}

fn progress(rest: &str) -> Result<Progress, String> {
    let (far, message) = word(rest);
    let message = (!message.trim().is_empty()).then(|| message.trim().to_owned());
    let expected = || "expected progress PERCENT or progress STEP/STEPS, and words".to_owned();
    if let Some((step, steps)) = far.split_once('/') {
        let (step, steps) = (step.parse::<u32>(), steps.parse::<u32>());
        let (Ok(step), Ok(steps)) = (step, steps) else {
            return Err(expected());
        };
        if step > steps || steps == 0 {
            return Err(format!("step {step} of {steps} cannot be"));
        }
        // The percentage of a step that is under 2^32 fits.
        let percent = u8::try_from(u64::from(step) * 100 / u64::from(steps)).ok();
        return Ok(Progress {
            percent,
            message,
            current_step: Some(step),
            step_count: Some(steps),
        });
    }
    let percent = far.trim_end_matches('%').parse::<u8>();
    match percent {
        Ok(percent @ 0..=100) => Ok(Progress {
            percent: Some(percent),
            message,
            ..Progress::default()
        }),
        Ok(percent) => Err(format!("{percent} percent cannot be")),
        Err(_) => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn every_verb_is_understood() {
        let far = |percent, message: Option<&str>| {
            Word::Progress(Progress {
                percent: Some(percent),
                message: message.map(Into::into),
                ..Progress::default()
            })
        };
        let submit = |payload| Word::Submit(Lane::new("images", "index").unwrap(), payload);
        let steps = Word::Progress(Progress {
            percent: Some(42),
            message: Some("copying".into()),
            current_step: Some(3),
            step_count: Some(7),
        });
        for (line, word) in [
            ("progress 40", far(40, None)),
            (
                "  progress 40% copying files ",
                far(40, Some("copying files")),
            ),
            ("progress 3/7 copying", steps),
            ("checkpoint page 7 ", Word::Checkpoint("page 7 ".into())),
            ("checkpoint", Word::Checkpoint(String::new())),
            ("stage planning", Word::Stage(name("planning"))),
            (
                "set output_files a b",
                Word::Set(name("output_files"), "a b".into()),
            ),
            ("set empty", Word::Set(name("empty"), String::new())),
            (
                "log warn  disk: full",
                Word::Log(Level::Warn, " disk: full".into()),
            ),
            (
                "retry-after 1.5m",
                Word::RetryAfter(Duration::from_secs(90)),
            ),
            (
                "submit images index a b.png",
                submit(Payload::Text("a b.png".into())),
            ),
            ("submit images index", submit(Payload::Text(String::new()))),
            (
                "submit images index @a b.json",
                submit(Payload::File("a b.json".into())),
            ),
            (
                "submit images index @@ada",
                submit(Payload::Text("@ada".into())),
            ),
        ] {
            assert_eq!(parse(line), Ok(word), "{line}");
        }
    }

    #[test]
    fn what_is_malformed_says_why() {
        for (line, why) in [
            ("", "first word"),
            ("Progress 40", "first word"),
            ("progress", "PERCENT"),
            ("progress soon", "PERCENT"),
            ("progress 101", "101 percent"),
            ("progress -1", "PERCENT"),
            ("progress 8/7", "8 of 7"),
            ("progress 0/0", "0 of 0"),
            ("stage ", "stage"),
            ("set", "attribute"),
            ("log loud x", "loud"),
            ("retry-after soon", "30s"),
            ("submit", "queue"),
            ("submit images", "kind"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn lines_of_standard_error_have_levels() {
        for (line, expected) in [
            ("plain", (Level::Info, "plain")),
            ("warn: disk is full", (Level::Warn, "disk is full")),
            ("WARNING: x", (Level::Warn, "x")),
            ("Error: x: y", (Level::Error, "x: y")),
            ("debug:x", (Level::Debug, "x")),
            ("http://error: x", (Level::Info, "http://error: x")),
            ("", (Level::Info, "")),
        ] {
            assert_eq!(levelled(line), expected, "{line}");
        }
    }
}
