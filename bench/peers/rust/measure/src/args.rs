//! What the runner asks for.

use crate::Result;

/// `COMMAND URL [--NAME VALUE]...`
#[derive(Clone, Debug)]
pub struct Args {
    /// What to do.
    pub command: String,
    /// The database or file.
    pub url: String,
    /// For which workload: peers may have a setting for each.
    pub workload: String,
    /// How many jobs to submit in bulk.
    pub jobs: u64,
    /// How many callers submit one job each at the same time.
    pub callers: u64,
    /// For how long.
    pub seconds: f64,
    /// How many jobs a second at most, all callers together.
    pub rate: Option<f64>,
    /// How long each caller pauses after a job, in milliseconds.
    pub gap_ms: f64,
    /// Whether each job has an idempotency key.
    pub keys: bool,
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut next = |what: &str| words.next().ok_or(format!("{what} is missing"));
        let mut args = Self {
            command: next("the command")?,
            url: next("the URL")?,
            workload: String::new(),
            jobs: 0,
            callers: 1,
            seconds: 0.0,
            rate: None,
            gap_ms: 0.0,
            keys: false,
        };
        while let Ok(name) = next("a name") {
            let value = next(&name)?;
            match name.as_str() {
                "--workload" => args.workload = value,
                "--jobs" => args.jobs = value.parse()?,
                "--callers" => args.callers = value.parse()?,
                "--seconds" => args.seconds = value.parse()?,
                "--rate" => args.rate = Some(value.parse()?),
                "--gap-ms" => args.gap_ms = value.parse()?,
                "--keys" => args.keys = value.parse()?,
                _ => return Err(format!("no such option: {name}").into()),
            }
        }
        Ok(args)
    }
}
