//! What becomes of a task, by how its command ended. Nothing in here waits or asks anybody.
//!
//! | exit code | what it says | what becomes of the task |
//! |---|---|---|
//! | 0 | done | completed, with standard output as its result |
//! | 65 (`EX_DATAERR`) | no attempt will ever succeed | failed for good |
//! | 69 (`EX_UNAVAILABLE`) | not here and now | put off, nothing is counted |
//! | 71 (`EX_OSERR`) | it could not be started | failed attempt; several in a row end the worker |
//! | 75 (`EX_TEMPFAIL`) | too early | put off, nothing is counted |
//! | 126, 127 | the command cannot be run, as shells say it | failed attempt |
//! | 129 to 192 | killed by a signal, as shells say it | failed attempt, unless the worker drains |
//! | any other | it went wrong | failed attempt |
//!
//! The codes with a meaning of their own are those of `sysexits.h`, which few programs use by
//! accident: 1 and 2, which most programs use for everything, mean no more than "again".

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use plimsoll::task::NewTask;
use plimsoll::worker::{Answer, Cause, Completion, Failure};
use rustix::process::Signal;

use crate::process::{CANNOT_RUN, NOT_FOUND, SIGNALLED};

/// `EX_DATAERR`: the input is wrong, and will be wrong next time.
const DATA: u8 = 65;
/// `EX_UNAVAILABLE`: something that is needed is missing here.
const UNAVAILABLE: u8 = 69;
/// `EX_TEMPFAIL`: to be tried again later.
const TEMPORARY: u8 = 75;

/// How long a task is put off by a command that does not say.
pub(super) const SNOOZE: Duration = Duration::from_secs(60);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With this exit code.
    Exited(u8),
    /// Its guard was killed by this signal, and the command with it.
    Killed(i32),
}

/// What a command wrote to its standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Whole(Bytes),
    /// More than a result may have.
    Beyond {
        max: usize,
    },
}

/// One run of a command.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) end: End,
    /// Why it was told to stop, if it was.
    pub(super) stopped: Option<Cause>,
    /// Whether the worker takes nothing new.
    pub(super) draining: bool,
    pub(super) output: Output,
    /// The last line on standard error that says anything.
    pub(super) last_words: Option<String>,
    /// When it wants to be tried again.
    pub(super) retry_after: Option<Duration>,
    /// How long the attempt may take.
    pub(super) timeout: Option<Duration>,
    /// What to submit if it is done.
    pub(super) follow_ups: FollowUps,
}

/// Tasks that a command wants submitted together with the end of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct FollowUps {
    pub(super) tasks: Vec<NewTask>,
    /// Which of them have their payloads in files.
    files: Vec<(usize, PathBuf)>,
    /// How many one commit can carry.
    count_max: usize,
    payload_max: usize,
    /// Why one of them cannot be submitted: then the task is not completed either.
    refused: Option<Failure>,
}

impl FollowUps {
    pub(super) fn up_to(count_max: usize, payload_max: usize) -> Self {
        Self {
            count_max,
            payload_max,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, task: NewTask, file: Option<PathBuf>) {
        let (count, size) = (self.tasks.len(), task.payload.len());
        if count == self.count_max {
            return self.refuse(Failure::fatal(format!(
                "more than {count} tasks to submit at once: let some of them submit the others"
            )));
        }
        if size > self.payload_max {
            return self.refuse(self.too_large());
        }
        self.files.extend(file.map(|file| (count, file)));
        self.tasks.push(task);
    }

    /// The first reason counts.
    pub(super) fn refuse(&mut self, why: Failure) {
        self.refused.get_or_insert(why);
    }

    /// Reads what is in files. Other things than files, which might not end, are not read.
    pub(super) fn read_files(&mut self) {
        for (index, path) in std::mem::take(&mut self.files) {
            let shown = path.display();
            match std::fs::metadata(&path) {
                Ok(file) if !file.is_file() => {
                    self.refuse(Failure::fatal(format!("`submit @{shown}`: is no file")));
                }
                Ok(file) if file.len() > self.payload_max as u64 => self.refuse(self.too_large()),
                found => match found.and_then(|_| std::fs::read(&path)) {
                    Ok(bytes) if bytes.len() > self.payload_max => self.refuse(self.too_large()),
                    Ok(bytes) => self.tasks[index].payload = bytes.into(),
                    // It may be there next time.
                    Err(error) => {
                        self.refuse(Failure::new(format!("`submit @{shown}`: {error}")));
                    }
                },
            }
        }
    }

    fn too_large(&self) -> Failure {
        Failure::fatal(format!(
            "the payload of a task to submit is larger than {} bytes: put it elsewhere and submit \
             where",
            self.payload_max
        ))
    }
}

impl Run {
    pub(super) fn exit_code(&self) -> Option<i32> {
        match self.end {
            End::Exited(code) => Some(code.into()),
            End::Killed(_) => None,
        }
    }

    /// What becomes of the task. An exit code of 0 says that the work is done, also after SIGTERM.
    pub(super) fn verdict(self) -> Answer {
        let words = self.words();
        let told_to_stop = self.draining && self.was_told_to_stop();
        match (self.end, self.stopped) {
            (End::Exited(0), _) => match (self.follow_ups.refused, self.output) {
                (Some(why), _) => Answer::Fail(why),
                (None, Output::Whole(bytes)) => {
                    let result = (!bytes.is_empty()).then_some(bytes);
                    let done = Completion {
                        result,
                        ..Completion::new()
                    };
                    let tasks = self.follow_ups.tasks.into_iter();
                    Answer::Complete(tasks.fold(done, Completion::submit))
                }
                (None, Output::Beyond { max }) => Answer::Fail(Failure::fatal(format!(
                    "the result on standard output is larger than {max} bytes: put it elsewhere \
                     and say where with `set result_ref`"
                ))),
            },
            (_, Some(Cause::Cancelled { reason })) => Answer::Cancel(reason),
            (End::Exited(DATA), _) => Answer::Fail(Failure::fatal(words)),
            (End::Exited(TEMPORARY | UNAVAILABLE), _) => {
                Answer::Snooze(self.retry_after.unwrap_or(SNOOZE))
            }
            // The worker gives the task back, with these words as the reason.
            (_, Some(Cause::Draining)) => Answer::Fail(Failure::new(words)),
            // The lease may have been renewed after all, and then this would be a failure.
            (_, Some(Cause::LeaseLost)) => Answer::Release,
            (_, Some(Cause::Deadline)) => {
                let limit = self.timeout.unwrap_or_default();
                let late = format!("ended after its time limit of {limit:?}: {words}");
                Answer::Fail(failure(late, self.retry_after))
            }
            // Somebody stops the worker with all that it has started: it is not the task's fault.
            (_, None) if told_to_stop => Answer::Release,
            (_, None) => Answer::Fail(failure(words, self.retry_after)),
        }
    }

    /// Whether it died of a signal that asks processes to end, and not at the worker's wish.
    pub(super) fn was_told_to_stop(&self) -> bool {
        let asks = [Signal::TERM, Signal::INT, Signal::HUP].map(|signal| signal.as_raw());
        let died_of = match self.end {
            End::Exited(code) => i32::from(code) - i32::from(SIGNALLED),
            End::Killed(signal) => signal,
        };
        self.stopped.is_none() && asks.contains(&died_of)
    }

    /// How it ended, in words.
    pub(super) fn words(&self) -> String {
        let how = match self.end {
            End::Exited(code @ CANNOT_RUN) => {
                format!("exit code {code}: the command cannot be run")
            }
            End::Exited(code @ NOT_FOUND) => format!("exit code {code}: the command was not found"),
            End::Exited(code) => match signal_name(i32::from(code) - i32::from(SIGNALLED)) {
                Some(signal) => format!("exit code {code}: killed by {signal}"),
                None => format!("exit code {code}"),
            },
            End::Killed(signal) => match signal_name(signal) {
                Some(signal) => format!("killed by {signal}"),
                None => format!("killed by signal {signal}"),
            },
        };
        match &self.last_words {
            Some(words) => format!("{how}: {words}"),
            None => how,
        }
    }
}

fn failure(words: String, retry_after: Option<Duration>) -> Failure {
    match retry_after {
        Some(delay) => Failure::retry_after(delay, words),
        None => Failure::new(words),
    }
}

/// How long a command may go on after SIGTERM: as it was configured, but so that what it said last
/// can be kept before the worker has to let go of the task.
pub(super) fn grace(
    configured: Duration,
    cause: &Cause,
    lease: Duration,
    timeout: Option<Duration>,
) -> Duration {
    match cause {
        Cause::Cancelled { .. } | Cause::Draining => configured,
        Cause::LeaseLost => configured.min(lease / 8),
        Cause::Deadline => {
            let warned = timeout.unwrap_or_default() / 10;
            configured.min(warned.min(Duration::from_secs(1)) / 2)
        }
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    let names = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    let found = names.iter().find(|(signal, _)| signal.as_raw() == number);
    found.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(end: End, stopped: Option<Cause>) -> Run {
        Run {
            end,
            stopped,
            draining: false,
            output: Output::Whole(Bytes::from_static(b"out")),
            last_words: None,
            retry_after: None,
            timeout: Some(Duration::from_secs(2)),
            follow_ups: FollowUps::up_to(1, 10),
        }
    }

    fn causes() -> [Option<Cause>; 5] {
        let reason = Some("enough".to_owned());
        [
            None,
            Some(Cause::Cancelled { reason }),
            Some(Cause::LeaseLost),
            Some(Cause::Deadline),
            Some(Cause::Draining),
        ]
    }

    /// Every exit code under every reason to stop.
    #[test]
    fn the_whole_table() {
        let ends = (0..=u8::MAX).map(End::Exited).chain([End::Killed(9)]);
        for end in ends {
            for cause in causes() {
                let answer = run(end, cause.clone()).verdict();
                let expected = match (end, &cause) {
                    (End::Exited(0), _) => Answer::Complete(Completion::bytes("out")),
                    (_, Some(Cause::Cancelled { reason })) => Answer::Cancel(reason.clone()),
                    (End::Exited(65), _) => Answer::Fail(Failure::fatal("exit code 65")),
                    (End::Exited(69 | 75), _) => Answer::Snooze(SNOOZE),
                    (end, Some(Cause::Deadline)) => Answer::Fail(Failure::new(format!(
                        "ended after its time limit of 2s: {}",
                        run(end, None).words()
                    ))),
                    (_, Some(Cause::LeaseLost)) => Answer::Release,
                    (end, _) => Answer::Fail(Failure::new(run(end, None).words())),
                };
                assert_eq!(answer, expected, "{end:?} {cause:?}");
            }
        }
    }

    #[test]
    fn words_name_what_happened() {
        let words = |end| run(end, None).words();
        assert_eq!(words(End::Exited(3)), "exit code 3");
        assert_eq!(words(End::Exited(137)), "exit code 137: killed by SIGKILL");
        assert_eq!(words(End::Exited(255)), "exit code 255");
        assert_eq!(words(End::Killed(9)), "killed by SIGKILL");
        assert_eq!(words(End::Killed(63)), "killed by signal 63");
        assert!(words(End::Exited(126)).contains("cannot be run"));
        assert!(words(End::Exited(127)).contains("not found"));
        let last_words = Some("disk full".into());
        let said = Run {
            last_words,
            ..run(End::Exited(3), None)
        };
        assert_eq!(said.words(), "exit code 3: disk full");
    }

    #[test]
    fn a_delay_is_heard_unless_the_worker_had_to_stop() {
        let delay = Duration::from_secs(5);
        let delayed = |code, cause| {
            let retry_after = Some(delay);
            let run = run(End::Exited(code), cause);
            Run { retry_after, ..run }.verdict()
        };
        let again = Answer::Fail(Failure::retry_after(delay, "exit code 1"));
        assert_eq!(delayed(1, None), again);
        assert_eq!(delayed(75, None), Answer::Snooze(delay));
        assert_eq!(delayed(69, None), Answer::Snooze(delay));
        let back = Answer::Fail(Failure::new("exit code 1"));
        assert_eq!(delayed(1, Some(Cause::Draining)), back);
        assert_eq!(delayed(1, Some(Cause::LeaseLost)), Answer::Release);
    }

    #[test]
    fn a_result_is_none_whole_or_too_large() {
        let with = |code, output| {
            let run = run(End::Exited(code), None);
            Run { output, ..run }.verdict()
        };
        let none = with(0, Output::Whole(Bytes::new()));
        assert_eq!(none, Answer::Complete(Completion::new()));
        let Answer::Fail(failure) = with(0, Output::Beyond { max: 10 }) else {
            panic!("too large must fail");
        };
        assert_eq!(failure.retry, Failure::fatal("").retry);
        assert!(failure.message.contains("10 bytes") && failure.message.contains("result_ref"));
        // A command that failed has another problem than its output.
        let failed = with(1, Output::Beyond { max: 10 });
        assert_eq!(failed, Answer::Fail(Failure::new("exit code 1")));
    }

    #[test]
    fn follow_ups_are_submitted_with_the_end_and_only_then() {
        let lane = plimsoll::task::Lane::new("q", "k").unwrap();
        let task = NewTask::new(plimsoll::TaskId::from_u128(7), lane, "");
        let with = |code, count| {
            let mut run = run(End::Exited(code), None);
            for _ in 0..count {
                run.follow_ups.add(task.clone(), None);
            }
            run.verdict()
        };
        let done = Completion::bytes("out").submit(task.clone());
        assert_eq!(with(0, 1), Answer::Complete(done));
        assert_eq!(with(1, 1), Answer::Fail(Failure::new("exit code 1")));
        let Answer::Fail(failure) = with(0, 2) else {
            panic!("too many must fail");
        };
        assert!(failure.message.contains("more than 1 tasks"), "{failure:?}");
    }

    #[test]
    fn a_follow_up_that_cannot_be_submitted_fails_the_task() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("fits"), "0123456789").unwrap();
        std::fs::write(path("large"), "0123456789a").unwrap();
        let lane = plimsoll::task::Lane::new("q", "k").unwrap();
        let task = |payload| NewTask::new(plimsoll::TaskId::from_u128(7), lane.clone(), payload);
        let with = |payload: &'static str, file: Option<&str>| {
            let mut run = run(End::Exited(0), None);
            run.follow_ups.add(task(payload), file.map(path));
            run.follow_ups.read_files();
            run.verdict()
        };
        let done = Completion::bytes("out").submit(task("0123456789"));
        assert_eq!(with("0123456789", None), Answer::Complete(done.clone()));
        assert_eq!(with("", Some("fits")), Answer::Complete(done));
        for (answer, why, fatal) in [
            (with("0123456789a", None), "larger than 10 bytes", true),
            (with("", Some("large")), "larger than 10 bytes", true),
            (with("", Some(".")), "is no file", true),
            (with("", Some("none")), "No such file", false),
        ] {
            let Answer::Fail(failure) = answer else {
                panic!("{why}: {answer:?}");
            };
            assert!(failure.message.contains(why), "{failure:?}");
            assert_eq!(failure.retry == Failure::fatal("").retry, fatal, "{why}");
        }
    }

    #[test]
    fn whoever_stops_the_worker_with_all_it_started_fails_no_task() {
        for code in 1..=u8::MAX {
            let drained = |draining| {
                let run = run(End::Exited(code), None);
                Run { draining, ..run }.verdict()
            };
            let released = drained(true) == Answer::Release;
            assert_eq!(released, [129, 130, 143].contains(&code), "{code}");
            assert_ne!(drained(false), Answer::Release, "{code}");
        }
    }

    #[test]
    fn grace_ends_before_the_worker_must_let_go() {
        let (long, lease) = (Duration::from_secs(60), Duration::from_secs(32));
        for cause in causes().into_iter().flatten() {
            let timeout = Some(Duration::from_secs(5));
            let longest = match cause {
                Cause::Cancelled { .. } | Cause::Draining => long,
                Cause::LeaseLost => Duration::from_secs(4),
                Cause::Deadline => Duration::from_millis(250),
            };
            assert_eq!(grace(long, &cause, lease, timeout), longest, "{cause:?}");
            let short = Duration::from_millis(1);
            assert_eq!(grace(short, &cause, lease, timeout), short, "{cause:?}");
        }
        let hours = Some(Duration::from_secs(36_000));
        let half = Duration::from_millis(500);
        assert_eq!(grace(long, &Cause::Deadline, lease, hours), half);
    }
}
