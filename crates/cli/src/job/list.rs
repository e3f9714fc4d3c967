//! `plimsoll job list`.

use clap::Args;
use futures::StreamExt;
use plimsoll::jobs::{JobInfo, Scope};
use plimsoll::{Error, Timestamp};

use super::picture::Picture;
use super::standing::{tint, words};
use super::wire::WireJob;
use crate::client::Client;
use crate::exit::{OK, Outcome};
use crate::grid::{Cell, Column, Grid};
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::table::grouped;
use crate::text::rough;

/// How many jobs are looked at beside each other.
const AT_ONCE: usize = 4;

/// Lists jobs, with how far each is.
#[derive(Debug, Args)]
pub(super) struct ListJobs {
    /// Only those whose names begin like this.
    #[arg(default_value = "")]
    prefix: String,
    /// Also those that were deleted within 30 days.
    #[arg(long)]
    deleted: bool,
    /// At most so many.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// However many there are.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// A job, and how far it is; without that, it was deleted or cannot be read.
struct Row {
    info: JobInfo,
    picture: Option<Picture>,
}

impl ListJobs {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let screen = &client.screen;
        let most = match self.all {
            true => usize::MAX,
            false => usize::try_from(self.limit).unwrap_or(usize::MAX),
        };
        let jobs = client.engine.jobs().list_all(&self.prefix);
        let jobs = jobs.filter(|job| {
            let shown = !matches!(job, Ok(job) if job.deleted_at.is_some() && !self.deleted);
            std::future::ready(shown)
        });
        let looked = jobs.map(async |job| look(client, job?).await);
        let mut looked = Box::pin(looked.buffered(AT_ONCE));
        let (mut rows, mut shown, mut unreadable) = (Vec::new(), 0, None);
        while let Some(row) = looked.next().await {
            if shown == most {
                screen.note(&format!(
                    "The first {shown} jobs; --limit and --all show more."
                ));
                break;
            }
            let row = match row {
                Ok((row, error)) => {
                    unreadable = error.or(unreadable);
                    row
                }
                Err(error @ Error::Corrupt(_)) => {
                    unreadable = Some(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            shown += 1;
            match screen.json {
                true if !screen.object(&WireJob::new(&row.info, row.picture.as_ref()))? => {
                    return Ok(OK);
                }
                true => {}
                false => rows.push(row),
            }
        }
        if !rows.is_empty() {
            say(&table(&rows, client.now(), screen))?;
        } else if shown == 0 && unreadable.is_none() && !screen.json {
            screen.note("There are no such jobs.");
        }
        unreadable.map_or(Ok(OK), |error| Err(error.into()))
    }
}

/// How far it is, and why that is not known, if its states cannot be read.
async fn look(client: &Client, info: JobInfo) -> plimsoll::Result<(Row, Option<Error>)> {
    let row = |picture| Row {
        info: info.clone(),
        picture,
    };
    if info.deleted_at.is_some() {
        return Ok((row(None), None));
    }
    let picture = async {
        let monitor = client.engine.jobs().monitor(&info.name).await?;
        Picture::take(&monitor, &Scope::all(), 0).await
    };
    match picture.await {
        Ok(picture) => Ok((row(Some(picture)), None)),
        Err(error @ Error::Corrupt(_)) => Ok((row(None), Some(error))),
        // It was deleted since it was listed.
        Err(Error::NotFound(_) | Error::Conflict(_)) => {
            let deleted_at = Some(client.now());
            let info = JobInfo {
                deleted_at,
                ..info.clone()
            };
            let picture = None;
            Ok((Row { info, picture }, None))
        }
        Err(error) => Err(error),
    }
}

fn table(rows: &[Row], now: Timestamp, screen: &Screen) -> String {
    const COLUMNS: [Column; 5] = [
        Column::new("JOB").cut_to(12),
        Column::new("STATUS"),
        Column::new("PARTITIONS").right(),
        Column::new("AGE").right(),
        Column::new("FINISHED").cut_to(12).rank(1),
    ];
    let cells = rows.iter().map(|row| {
        let info = &row.info;
        let status = match (&row.picture, info.deleted_at) {
            (Some(Picture { lowest, .. }), _) => {
                Cell::tinted(words(lowest.status), tint(lowest.status))
            }
            (None, Some(_)) => Cell::tinted("deleted", Tint::Faint),
            (None, None) => Cell::tinted("unreadable", Tint::Bad),
        };
        let tags = row.picture.iter().flat_map(|picture| &picture.tags);
        let tags = tags.map(|tag| format!("{} {}", tag.tag, grouped(tag.finished.into())));
        vec![
            info.name.as_str().into(),
            status,
            grouped(info.partitions.into()).into(),
            rough(now.since(info.created_at)).into(),
            tags.collect::<Vec<_>>().join(", ").into(),
        ]
    });
    let cells: Vec<Vec<Cell>> = cells.collect();
    let grid = Grid::fit(&COLUMNS, &cells, screen.width);
    grid.header(screen) + &grid.rows(&cells, screen)
}
