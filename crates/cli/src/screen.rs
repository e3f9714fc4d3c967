//! Where answers go: to people, with colours and a width, or to programs, as JSON.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use console::Style;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::task::Status;
use serde::Serialize;

use crate::exit::Outcome;
use crate::output::say;

/// Whether answers are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

fn coloured(colour: Colour, on_terminal: bool, no_color: bool, dumb: bool) -> bool {
    match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => on_terminal && !no_color && !dumb,
    }
}

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tint {
    Plain,
    Strong,
    Faint,
    Good,
    Busy,
    Waiting,
    Later,
    Bad,
    Warning,
}

impl From<Status> for Tint {
    fn from(status: Status) -> Self {
        match status {
            Status::Scheduled => Self::Later,
            Status::Pending => Self::Waiting,
            Status::Claimed => Self::Busy,
            Status::Completed => Self::Good,
            Status::Failed => Self::Bad,
            Status::Cancelled => Self::Faint,
        }
    }
}

/// Who reads, and how.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    colours: bool,
    /// How many columns there are; `None`: as many as it takes.
    pub(crate) width: Option<usize>,
}

impl Screen {
    pub(crate) fn new(json: bool, quiet: bool, colour: Colour) -> Self {
        let terminal = console::Term::stdout();
        let on_terminal = std::io::stdout().is_terminal();
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colours = coloured(colour, on_terminal, set("NO_COLOR"), dumb);
        let asked = std::env::var("COLUMNS").ok();
        let asked = asked.and_then(|columns| columns.parse().ok());
        let found = || terminal.size_checked().map(|(_, width)| width.into());
        let found = if on_terminal { found() } else { None };
        Self {
            json,
            quiet,
            colours,
            width: asked.or(found),
        }
    }

    /// Without colours.
    #[cfg(test)]
    pub(crate) fn plain(width: Option<usize>) -> Self {
        Self {
            json: false,
            quiet: false,
            colours: false,
            width,
        }
    }

    pub(crate) fn paint(&self, tint: Tint, text: &str) -> String {
        let style = Style::new().force_styling(self.colours);
        let style = match tint {
            Tint::Plain => style,
            Tint::Strong => style.bold(),
            Tint::Faint => style.dim(),
            Tint::Good => style.green(),
            Tint::Busy => style.cyan(),
            Tint::Waiting | Tint::Warning => style.yellow(),
            Tint::Later => style.blue(),
            Tint::Bad => style.red(),
        };
        style.apply_to(text).to_string()
    }

    /// One object for programs, on a line of its own. Whether somebody still listens.
    pub(crate) fn object(&self, object: &impl Serialize) -> Outcome<bool> {
        Ok(say(&(serde_json::to_string(object)? + "\n"))?)
    }

    /// A word beside the answer, for people, on standard error.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            // If nobody listens, nobody misses it.
            writeln!(std::io::stderr(), "{text}").ok();
        }
    }

    /// A bar on standard error, if that is a terminal and nobody asked for silence.
    pub(crate) fn bar(&self, template: &str) -> ProgressBar {
        if self.quiet {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_unless_asked_otherwise() {
        for bits in 0..8 {
            let [terminal, no_color, dumb] = [1, 2, 4].map(|bit| bits & bit != 0);
            let shown = |colour| coloured(colour, terminal, no_color, dumb);
            assert!(shown(Colour::Always));
            assert!(!shown(Colour::Never));
            assert_eq!(shown(Colour::Auto), bits == 1, "{bits}");
        }
    }
}
