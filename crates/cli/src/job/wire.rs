//! What programs read of jobs: the names here are promised in `docs/cli.md`.

use std::collections::BTreeMap;

use plimsoll::Name;
use plimsoll::jobs::{JobInfo, Payload, Progress, State, StateEvent};
use serde::Serialize;

use super::picture::Picture;
use super::standing::code;
use crate::wire::At;

/// A job.
#[derive(Serialize)]
pub(super) struct WireJob<'a> {
    job: &'a Name,
    status: &'static str,
    partitions: u32,
    tags: Vec<WireTag<'a>>,
    lowest: Option<WireState<'a>>,
    created_at: At,
    deleted_at: Option<At>,
    generation: u64,
    retain_ms: Option<u128>,
    about: &'a BTreeMap<Name, String>,
}

impl<'a> WireJob<'a> {
    /// Without a picture, it was deleted, or its states cannot be read.
    pub(super) fn new(info: &'a JobInfo, picture: Option<&'a Picture>) -> Self {
        let status = match (picture, info.deleted_at) {
            (Some(picture), _) => code(picture.lowest.status),
            (None, Some(_)) => "deleted",
            (None, None) => "unreadable",
        };
        let tags = picture.map_or(&[][..], |picture| &picture.tags);
        Self {
            job: &info.name,
            status,
            partitions: info.partitions,
            tags: tags.iter().map(WireTag::from).collect(),
            lowest: picture.map(|picture| WireState::from(&picture.lowest)),
            created_at: At(info.created_at),
            deleted_at: info.deleted_at.map(At),
            generation: info.generation,
            retain_ms: info.retain.map(|retain| retain.as_millis()),
            about: &info.about,
        }
    }
}

/// How far a tag is.
#[derive(Serialize)]
struct WireTag<'a> {
    tag: &'a Name,
    not_started: u32,
    running: u32,
    finished: u32,
    failed: u32,
}

impl<'a> From<&'a Progress> for WireTag<'a> {
    fn from(progress: &'a Progress) -> Self {
        Self {
            tag: &progress.tag,
            not_started: progress.not_started,
            running: progress.running,
            finished: progress.finished,
            failed: progress.failed,
        }
    }
}

/// A job with its states.
#[derive(Serialize)]
pub(super) struct WireShown<'a> {
    #[serde(flatten)]
    pub(super) job: WireJob<'a>,
    pub(super) states: Vec<WireState<'a>>,
    pub(super) states_total: usize,
}

/// A state.
#[derive(Serialize)]
pub(super) struct WireState<'a> {
    partition: u32,
    tag: Option<&'a Name>,
    status: i32,
    message: &'a str,
    timestamp: Option<At>,
    version: u64,
    event_id: Option<&'a Name>,
    payload: Option<&'a Payload>,
    schema_version: u32,
}

impl<'a> From<&'a State> for WireState<'a> {
    fn from(state: &'a State) -> Self {
        Self {
            partition: state.partition,
            tag: state.tag.as_ref(),
            status: state.status,
            message: &state.message,
            timestamp: state.timestamp.map(At),
            version: state.version,
            event_id: state.event_id.as_ref(),
            payload: state.payload.as_ref(),
            schema_version: state.schema_version,
        }
    }
}

/// An event.
#[derive(Serialize)]
pub(super) struct WireEvent<'a> {
    event: &'static str,
    replay: bool,
    cursor: Option<String>,
    state: Option<WireState<'a>>,
}

impl<'a> From<&'a StateEvent> for WireEvent<'a> {
    fn from(event: &'a StateEvent) -> Self {
        let (name, replay, state) = match event {
            StateEvent::State(state) => ("state", state.is_replay(), Some(&**state)),
            StateEvent::ReplayComplete { .. } => ("replay_complete", false, None),
            StateEvent::Restarted => ("restarted", false, None),
        };
        Self {
            event: name,
            replay,
            cursor: event.cursor().map(String::from),
            state: state.map(WireState::from),
        }
    }
}
