//! What a subscription has taken at once, and the states of it that are told one by one.
//!
//! A thousand subscribers are told the same states, by every core. Whoever counts the holders of a state
//! writes what all of them read, and then all wait for each other's memory. So each subscription has a portion of
//! its own: a state is lent of that one, and who keeps it holds that one.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use plimsoll_core::Name;

use super::event::Cursor;
use crate::history::{Place, Share, Told};
use crate::jobs::info::Life;
use crate::jobs::{Scope, State};

/// What was taken at once, also of other scopes.
#[derive(Debug)]
pub(super) struct Portion {
    /// Its own: to count the holders of a shared one is felt as well.
    job: Name,
    life: Life,
    scope: Scope,
    is_replay: bool,
    share: Share<Place, Arc<State>>,
}

impl Portion {
    /// Nothing of this scope.
    pub(super) fn new(job: Name, life: Life, scope: Scope) -> Self {
        Self {
            job,
            life,
            scope,
            is_replay: false,
            share: Share::default(),
        }
    }

    /// Replaces what was taken. Those who were told of that keep it.
    pub(super) fn replace(this: &mut Arc<Self>, share: Share<Place, Arc<State>>, is_replay: bool) {
        match Arc::get_mut(this) {
            Some(portion) => {
                portion.share = share;
                portion.is_replay = is_replay;
            }
            None => {
                *this = Arc::new(Self {
                    job: this.job.clone(),
                    life: this.life,
                    scope: this.scope.clone(),
                    is_replay,
                    share,
                });
            }
        }
    }

    #[inline]
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    #[inline]
    pub(super) fn is_replay(&self) -> bool {
        self.is_replay
    }

    pub(super) fn cursor(&self, place: Place) -> Cursor {
        Cursor::new(self.job.clone(), self.life, place)
    }

    /// Everything, also of other scopes.
    #[inline]
    pub(super) fn all(&self) -> &[Told<Place, Arc<State>>] {
        self.share.left()
    }

    /// Those of its scope among some.
    pub(super) fn covered(&self, some: Range<usize>) -> impl Iterator<Item = (usize, &Arc<State>)> {
        let told = self.all().get(some.clone()).unwrap_or_default();
        let states = some.zip(told.iter().map(|told| &told.event));
        states.filter(|(_, state)| self.scope.covers(state))
    }
}

/// A state that a subscription tells, lent until the next one. It can be used like the [`State`] that it is.
///
/// To count who holds a state takes longer than to tell it. This one is not counted: [`keep`](Self::keep) makes one that
/// is one's own.
#[derive(Clone, Copy)]
pub struct LentState<'a> {
    portion: &'a Arc<Portion>,
    index: usize,
}

impl<'a> LentState<'a> {
    /// The state at an index of what a portion has.
    #[inline]
    pub(super) fn new(portion: &'a Arc<Portion>, index: usize) -> Self {
        Self { portion, index }
    }

    #[inline]
    fn told(self) -> &'a Told<Place, Arc<State>> {
        // A portion does not change as long as somebody borrows or holds it.
        &self.portion.all()[self.index]
    }

    /// It as one's own, whatever the subscription tells next.
    #[inline]
    pub fn keep(self) -> ToldState {
        ToldState {
            portion: self.portion.clone(),
            index: self.index,
        }
    }

    /// The state.
    #[inline]
    pub fn state(self) -> &'a Arc<State> {
        &self.told().event
    }

    /// Whether it was there before the subscription began.
    #[inline]
    pub fn is_replay(self) -> bool {
        self.portion.is_replay
    }

    /// Goes on after this state; `None` during the replay, which can only begin again.
    pub fn cursor(self) -> Option<Cursor> {
        (!self.is_replay()).then(|| self.portion.cursor(self.told().place))
    }
}

impl Deref for LentState<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state()
    }
}

impl PartialEq for LentState<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.state() == other.state())
            && self.is_replay() == other.is_replay()
            && self.cursor() == other.cursor()
    }
}

impl fmt::Debug for LentState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f.debug_struct("LentState").field("state", self.state()))
            .field("cursor", &self.cursor())
            .finish()
    }
}

/// A state that a subscription has told, as one's own. It can be used like the [`State`] that it is.
///
/// It holds what was told together with it: up to 512 states, or about half a megabyte of them, unless
/// [`keeping_events`](crate::Engine::keeping_events) says more; of a replay up to 512. Whoever keeps it for long keeps a clone of its [`state`](Self::state) instead.
#[derive(Clone)]
pub struct ToldState {
    portion: Arc<Portion>,
    index: usize,
}

impl ToldState {
    #[inline]
    fn lend(&self) -> LentState<'_> {
        LentState::new(&self.portion, self.index)
    }

    /// The state.
    pub fn state(&self) -> &Arc<State> {
        self.lend().state()
    }

    /// Whether it was there before the subscription began.
    #[inline]
    pub fn is_replay(&self) -> bool {
        self.lend().is_replay()
    }

    /// Goes on after this state; `None` during the replay, which can only begin again.
    pub fn cursor(&self) -> Option<Cursor> {
        self.lend().cursor()
    }
}

impl Deref for ToldState {
    type Target = State;

    fn deref(&self) -> &State {
        self.state()
    }
}

impl PartialEq for ToldState {
    fn eq(&self, other: &Self) -> bool {
        self.lend() == other.lend()
    }
}

impl fmt::Debug for ToldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f.debug_struct("ToldState").field("state", self.state()))
            .field("cursor", &self.cursor())
            .finish()
    }
}
