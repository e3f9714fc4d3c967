//! Which tasks are meant: filters of people, as the indexed selectors of the store.

use clap::Args;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use plimsoll::store::{Counts, List, Selector, TaskFilter};
use plimsoll::task::{Status, Task};
use plimsoll::{GroupId, Name, Prefix, Result, Tasks, Timestamp};

use crate::client::Client;
use crate::input::{self, Past};

/// How many tasks are read at a time.
const PAGE: usize = 200;

/// What is alive comes first, then what went wrong.
pub(super) const BY_INTEREST: [Status; 6] = [
    Status::Claimed,
    Status::Pending,
    Status::Scheduled,
    Status::Failed,
    Status::Cancelled,
    Status::Completed,
];

/// Which tasks. Everything given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Which tasks")]
pub(super) struct Filters {
    /// Of this queue.
    #[arg(long, value_name = "NAME")]
    queue: Option<Name>,
    /// Of this kind.
    #[arg(long, value_name = "NAME")]
    kind: Option<Name>,
    /// With one of these statuses, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = input::status())]
    status: Vec<Status>,
    /// Of this owner.
    #[arg(long, value_name = "NAME")]
    owner: Option<Name>,
    /// Of this group.
    #[arg(long, value_name = "ID")]
    group: Option<GroupId>,
    /// Whose key begins like this.
    #[arg(long, value_name = "PREFIX")]
    key_prefix: Option<Prefix>,
    /// With this label; may be given more than once.
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::label)]
    label: Vec<(Name, Name)>,
    /// Held by a worker of this name.
    #[arg(long, value_name = "NAME")]
    worker: Option<Name>,
    /// In this stage.
    #[arg(long, value_name = "NAME")]
    stage: Option<Name>,
    /// Submitted at or after this moment, or as long ago: `2h`.
    #[arg(long, value_name = "WHEN", value_parser = input::past)]
    created_after: Option<Past>,
    /// Submitted before this moment, or longer ago.
    #[arg(long, value_name = "WHEN", value_parser = input::past)]
    created_before: Option<Past>,
    /// Ended at or after this moment, or as long ago.
    #[arg(long, value_name = "WHEN", value_parser = input::past)]
    finished_after: Option<Past>,
    /// Ended before this moment, or longer ago.
    #[arg(long, value_name = "WHEN", value_parser = input::past)]
    finished_before: Option<Past>,
}

impl Filters {
    /// Whether nothing is given, so that every task is meant.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether one selector of the store says it all: there is no index for an owner's tasks in a
    /// queue.
    pub(super) fn is_indexed(&self) -> bool {
        let lanes = self.queue.is_some() || self.kind.is_some();
        let scopes = [
            lanes,
            self.owner.is_some(),
            self.group.is_some(),
            self.key_prefix.is_some(),
        ];
        scopes.into_iter().filter(|given| *given).count() <= 1
    }

    /// The statuses that can match: those asked for or else these, without those that never have
    /// what else is asked for.
    fn statuses(&self, otherwise: &[Status]) -> Vec<Status> {
        let asked = |status: &Status| match self.status.as_slice() {
            [] => otherwise.contains(status),
            asked => asked.contains(status),
        };
        let held = self.worker.is_some() || self.stage.is_some();
        let ended = self.finished_after.is_some() || self.finished_before.is_some();
        let mut statuses = BY_INTEREST.to_vec();
        statuses.retain(|status| {
            asked(status)
                && (!held || *status == Status::Claimed)
                && (!ended || status.is_terminal())
        });
        statuses
    }

    /// What to look through. Tasks of all statuses but `otherwise` are left out unless asked for.
    pub(super) async fn selection(
        &self,
        client: &Client,
        otherwise: &[Status],
    ) -> Result<Selection> {
        let statuses = self.statuses(otherwise);
        let filter = self.filter(&statuses, client.now());
        let selectors = match (&self.owner, &self.group, &self.key_prefix) {
            _ if statuses.is_empty() => Vec::new(),
            (Some(owner), _, _) => vec![Selector::Owner(owner.clone())],
            (_, Some(group), _) => vec![Selector::Group(group.clone())],
            (_, _, Some(prefix)) => vec![Selector::Key(prefix.clone())],
            (None, None, None) => self.lanes(client, &statuses).await?,
        };
        Ok(Selection {
            selectors,
            filter,
            also: self.clone(),
        })
    }

    /// The lanes that have such tasks, status by status.
    async fn lanes(&self, client: &Client, statuses: &[Status]) -> Result<Vec<Selector>> {
        let counts = Counts {
            queue: self.queue.clone(),
            kind: self.kind.clone(),
        };
        let lanes = client.tasks.counts(counts).await?;
        let of_status = |status: &Status| {
            let having = lanes
                .iter()
                .filter(|lane| lane.by_status.contains_key(status));
            let selectors = having.map(|counts| Selector::Lane(counts.lane.clone(), *status));
            selectors.collect::<Vec<_>>()
        };
        Ok(statuses.iter().flat_map(of_status).collect())
    }

    fn filter(&self, statuses: &[Status], now: Timestamp) -> TaskFilter {
        let moment = |past: Option<Past>| past.map(|past| past.before(now));
        TaskFilter {
            statuses: statuses.to_vec(),
            labels: self.label.iter().cloned().collect(),
            worker: self.worker.clone(),
            stage: self.stage.clone(),
            created_from: moment(self.created_after),
            created_before: moment(self.created_before),
            finished_from: moment(self.finished_after),
            finished_before: moment(self.finished_before),
        }
    }

    /// What no filter of the store can say.
    fn matches(&self, task: &Task) -> bool {
        let spec = &task.spec;
        let key = spec.key.as_ref().map(|(key, _)| key.as_str());
        let has_prefix = |prefix: &Prefix| key.is_some_and(|key| prefix.matches(key));
        (self.queue.as_ref()).is_none_or(|queue| spec.lane.queue == *queue)
            && (self.kind.as_ref()).is_none_or(|kind| spec.lane.kind == *kind)
            && (self.owner.is_none() || self.owner == spec.owner)
            && (self.group.is_none() || self.group == spec.group)
            && self.key_prefix.as_ref().is_none_or(has_prefix)
    }
}

/// What to look through, one after another.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) selectors: Vec<Selector>,
    pub(super) filter: TaskFilter,
    also: Filters,
}

impl Selection {
    /// All these tasks, page by page as they are taken.
    pub(super) fn tasks(self, tasks: &Tasks) -> BoxStream<'static, Result<Task>> {
        let tasks = tasks.clone();
        let Self {
            selectors,
            filter,
            also,
        } = self;
        let lists = selectors.into_iter().map(move |selector| {
            let list = List::new(selector, PAGE);
            let filter = filter.clone();
            tasks.list_all(List { filter, ..list })
        });
        let all = stream::iter(lists).flatten();
        all.try_filter(move |task| std::future::ready(also.matches(task)))
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_statuses_that_can_match_are_looked_through() {
        let name = Some(Name::new("x").expect("a name"));
        let ago = Some(Past::Ago(Duration::from_secs(1)));
        let none = Filters::default();
        let held = Filters {
            worker: name,
            ..none.clone()
        };
        let ended = Filters {
            finished_after: ago,
            ..none.clone()
        };
        let failed = Filters {
            status: vec![Status::Failed],
            ..held.clone()
        };
        let terminal = [Status::Failed, Status::Cancelled, Status::Completed];
        assert_eq!(none.statuses(&Status::ALL), BY_INTEREST);
        assert_eq!(none.statuses(&[Status::Failed]), [Status::Failed]);
        assert_eq!(held.statuses(&Status::ALL), [Status::Claimed]);
        assert_eq!(ended.statuses(&Status::ALL), terminal);
        assert!(failed.statuses(&Status::ALL).is_empty());
    }
}
