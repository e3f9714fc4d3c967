//! `plimsoll task steps`.

use std::time::Duration;

use clap::Args;
use plimsoll::Timestamp;
use plimsoll::log::AttemptStep;

use crate::client::Client;
use crate::exit::{OK, Outcome};
use crate::grid::{Cell, Column, Grid};
use crate::input::{self, Which};
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::text::{age, span};
use crate::wire::WireAttemptStep;

/// Shows the steps of a task: commands that it ran, over all its attempts.
#[derive(Debug, Args)]
pub(super) struct ShowSteps {
    /// Its id, or `key:KEY`.
    #[arg(value_name = "TASK", value_parser = input::which)]
    task: Which,
}

impl ShowSteps {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let task = self.task.id(&client.tasks).await?;
        let steps = client.tasks.steps(task).await?;
        let screen = &client.screen;
        if screen.json {
            for step in &steps {
                if !screen.object(&WireAttemptStep::from(step))? {
                    break;
                }
            }
        } else if steps.is_empty() {
            screen.note("The task has no steps.");
        } else {
            say(&table(&steps, client.now(), screen))?;
        }
        Ok(OK)
    }
}

fn table(steps: &[AttemptStep], now: Timestamp, screen: &Screen) -> String {
    const COLUMNS: [Column; 7] = [
        Column::new("STEP").cut_to(8),
        Column::new("KIND").cut_to(6),
        Column::new("STATE"),
        Column::new("CODE").right(),
        Column::new("TOOK").right(),
        Column::new("STARTED").rank(1),
        Column::new("COMMAND OR ERROR").cut_to(16),
    ];
    let rows = steps.iter().map(|step| {
        let (state, tint) = match step.success {
            Some(true) => ("done", Tint::Good),
            Some(false) => ("failed", Tint::Bad),
            None if step.cut_off => ("cut off", Tint::Bad),
            None => ("running", Tint::Plain),
        };
        let code = step.exit_code.map(|code| code.to_string());
        let took = step.duration_ms.map(|ms| span(Duration::from_millis(ms)));
        let about = step.error.as_ref().or(step.command.as_ref());
        vec![
            step.step_id.as_str().into(),
            step.kind.as_str().into(),
            Cell::tinted(state, tint),
            code.unwrap_or_default().into(),
            took.unwrap_or_default().into(),
            age(now, step.started_at).into(),
            about.map(String::as_str).unwrap_or_default().into(),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let grid = Grid::fit(&COLUMNS, &rows, screen.width);
    grid.header(screen) + &grid.rows(&rows, screen)
}
