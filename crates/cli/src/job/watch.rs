//! `plimsoll job watch`.

use std::future::poll_fn;
use std::io::IsTerminal;
use std::task::Poll;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll::jobs::{Cursor, Monitor, Scope, StateEvent, SubscribeOptions, Subscription};
use plimsoll::{Error, Name};
use tokio::signal::unix::{SignalKind, signal};

use super::live::{EACH_MAX, Size, frame};
use super::picture::{Picture, said};
use super::show::Which;
use super::standing::{tint, words};
use super::wire::WireEvent;
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome};
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::text::{clean, instant};

/// How long a picture stands at least.
const FRAME: Duration = Duration::from_millis(100);

/// Shows every change of a job: on a terminal as a picture, elsewhere as a line for each state that is
/// there, a marker, and a line for each change. Ends with 31 when the job is deleted, with 0 after an
/// interrupt or SIGTERM.
#[derive(Debug, Args)]
pub(super) struct Watch {
    /// Which job.
    job: Name,
    #[command(flatten)]
    which: Which,
    /// Goes on behind the line that had this cursor, instead of beginning with what is there. Always
    /// shows lines.
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
    /// Ends when everything that is looked at is finished. Name the last tag with --tag: without it,
    /// a job counts as finished while none of its partitions has said anything of the next tag.
    #[arg(long, value_enum)]
    until: Option<Until>,
    /// A line for each change, also on a terminal.
    #[arg(long)]
    lines: bool,
    /// Waits until there is such a job.
    #[arg(long)]
    wait_for_job: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Until {
    Finished,
}

impl Watch {
    pub(super) fn waits_for_job(&self) -> bool {
        self.wait_for_job
    }

    pub(super) async fn run(self, client: &Client) -> Outcome {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut watched = tokio::select! {
            biased;
            _ = interrupt.recv() => return Ok(OK),
            _ = terminate.recv() => return Ok(OK),
            watched = self.watch(client) => watched?,
        };
        let ended = tokio::select! {
            biased;
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
            ended = watched.show() => Some(ended),
        };
        if matches!(
            ended,
            None | Some(Err(CliError::Plimsoll(Error::Unavailable(_))))
        ) {
            watched.say_where();
        }
        ended.unwrap_or(Ok(OK))
    }

    async fn watch(self, client: &Client) -> Outcome<Watched<'_>> {
        let screen = &client.screen;
        let draws = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let draws = draws && !(screen.json || screen.quiet || self.lines || self.after.is_some());
        let (jobs, scope) = (client.engine.jobs(), self.which.scope());
        let monitor = match self.wait_for_job {
            true => jobs.monitor_when_created(&self.job).await?,
            false => jobs.monitor(&self.job).await?,
        };
        let options = SubscribeOptions {
            after: self.after,
            ..SubscribeOptions::default()
        };
        let events = monitor.subscribe(scope.clone(), options).await?;
        Ok(Watched {
            client,
            draws,
            monitor,
            scope,
            events,
            until: self.until,
            ending: false,
        })
    }
}

struct Watched<'a> {
    client: &'a Client,
    /// As a picture, not in lines.
    draws: bool,
    monitor: Monitor,
    scope: Scope,
    events: Subscription,
    until: Option<Until>,
    /// All was finished when it was looked at last: what was told by then is shown, and that is all.
    ending: bool,
}

impl Watched<'_> {
    async fn show(&mut self) -> Outcome {
        match self.draws {
            true => self.draw().await,
            false => self.tell().await,
        }
    }

    /// Where to go on: what was told last may be too long ago.
    fn say_where(&self) {
        let screen = &self.client.screen;
        if let Some(cursor) = self.events.cursor()
            && !(self.draws || screen.json)
        {
            screen.note(&format!("To go on from here: --after {cursor}"));
        }
    }

    /// The next event; `None`: what was waited for has come, and everything before it was told.
    async fn next(&mut self) -> Outcome<Option<StateEvent>> {
        let mut looked = false;
        loop {
            let events = &mut self.events;
            // Only who waits is known to have told everything; it is looked at once while it does.
            let next = poll_fn(|context| match events.poll_next_unpin(context) {
                Poll::Ready(next) => Poll::Ready(Some(next)),
                Poll::Pending if events.is_waiting() && !looked => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            match next.await {
                Some(Some(event)) => return Ok(Some(event?)),
                Some(None) => return Ok(None),
                None if self.ending => return Ok(None),
                None => {
                    self.ending = self.is_over().await?;
                    looked = !self.ending;
                }
            }
        }
    }

    async fn is_over(&self) -> Outcome<bool> {
        match self.until {
            Some(Until::Finished) => Ok(self.monitor.get_state(&self.scope).await?.is_finished()),
            None => Ok(false),
        }
    }

    /// Shows a line for each event.
    async fn tell(&mut self) -> Outcome {
        let screen = &self.client.screen;
        while let Some(event) = self.next().await? {
            let heard = match screen.json {
                true => screen.object(&WireEvent::from(&event))?,
                false => say(&line(&event, screen))?,
            };
            if !heard {
                break;
            }
        }
        Ok(OK)
    }

    /// Draws the job anew after changes, ten times a second at most.
    async fn draw(&mut self) -> Outcome {
        let clock = self.client.engine.clock().clone();
        let canvas = Canvas::new();
        let (mut changed, mut next_frame) = (true, clock.sleep(Duration::ZERO));
        loop {
            tokio::select! {
                biased;
                () = &mut next_frame, if changed => {
                    canvas.show(&self.picture().await?);
                    changed = false;
                    next_frame = clock.sleep(FRAME);
                }
                event = self.next() => match event? {
                    Some(_) => changed = true,
                    None => {
                        canvas.show(&self.picture().await?);
                        return Ok(OK);
                    }
                },
            }
        }
    }

    async fn picture(&self) -> Outcome<Vec<String>> {
        let (job, screen) = (self.monitor.job(), &self.client.screen);
        let picture = Picture::take(&self.monitor, &self.scope, EACH_MAX).await?;
        Ok(frame(job, &self.scope, &picture, size(), screen))
    }
}

/// How much room the terminal has now. The last column and line stay free, so that nothing wraps.
fn size() -> Size {
    let (height, width) = console::Term::stderr().size();
    Size {
        width: usize::from(width).saturating_sub(1),
        height: usize::from(height).saturating_sub(1),
    }
}

/// Where pictures are drawn, each over the one before. The last one stays.
struct Canvas(ProgressBar);

impl Canvas {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn show(&self, lines: &[String]) {
        self.0.set_message(lines.join("\n"));
    }
}

impl Drop for Canvas {
    fn drop(&mut self) {
        self.0.abandon();
        // The last line has no end.
        eprintln!();
    }
}

fn line(event: &StateEvent, screen: &Screen) -> String {
    let faint = |text: &str| screen.paint(Tint::Faint, text);
    match event {
        StateEvent::State(state) => {
            let cursor = state.cursor().map(|cursor| clean(&cursor.to_string()));
            let cursor = faint(&cursor.unwrap_or_else(|| "replay".into()));
            let at = faint(&state.timestamp.map(instant).unwrap_or_default());
            let tag = clean(state.tag.as_ref().map_or("", Name::as_str));
            let status = screen.paint(tint(state.status), &words(state.status));
            let message = screen.paint(said(state), &clean(&state.message));
            let (partition, message) = (state.partition, message.trim_end());
            let line = format!("{cursor}  {at}  {partition}  {tag}  {status}  {message}");
            line.trim_end().to_owned() + "\n"
        }
        StateEvent::ReplayComplete { cursor } => {
            let cursor = clean(&cursor.to_string());
            format!("{}\n", faint(&format!("{cursor}  replay complete")))
        }
        StateEvent::Restarted => {
            let what = "restarted  changes may be missing: what there is follows";
            format!("{}\n", screen.paint(Tint::Warning, what))
        }
    }
}
