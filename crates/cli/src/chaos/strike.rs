//! What is done to processes, and that they wake up again.

use std::io::Write;
use std::time::Duration;

use futures::TryStreamExt;

use super::ChaosError;
use super::cast::{Role, State};
use super::dice::{Deed, Stroke};
use super::processes::marked;
use super::run::Run;
use super::summary::Summary;

impl Run {
    pub(super) async fn strike(
        &mut self,
        stroke: Stroke,
        summary: &mut Summary,
    ) -> Result<(), ChaosError> {
        let number = match (stroke.deed, stroke.role) {
            (Deed::Freeze, Role::Holder) => self.holding(stroke).await?,
            _ => stroke.number,
        };
        let (now, deeds) = (self.now(), &mut summary.deeds);
        let Some(index) = self.cast.index(stroke.role, number) else {
            return Ok(());
        };
        let name = stroke.role.name(number);
        let state = self.cast.actors[index].state;
        let line = format!(
            "{:8.3} {:?} {name}, {state:?}",
            now.as_secs_f64(),
            stroke.deed
        );
        writeln!(self.log, "{line}").map_err(ChaosError::Folder)?;
        match (stroke.deed, state) {
            (Deed::Kill, _) => {
                *match stroke.role {
                    Role::Worker => &mut deeds.workers_killed,
                    Role::Holder => &mut deeds.holders_killed,
                    Role::Watchdog => &mut deeds.watchdogs_killed,
                } += 1;
                self.suspects.left_by(&name, now);
                self.cast.kill(index, now).await
            }
            (Deed::Freeze, State::Up) => {
                *match stroke.role {
                    Role::Worker => &mut deeds.workers_frozen,
                    Role::Holder => &mut deeds.holders_frozen,
                    Role::Watchdog => &mut deeds.watchdogs_frozen,
                } += 1;
                self.suspects.excuse(&name);
                self.cast.freeze(index, now + stroke.lasts)
            }
            (Deed::Drain, State::Up) => self.cast.drain(index, now),
            (Deed::Cut, _) => {
                let mut commands = marked(&self.stage.mark);
                commands.retain(|process| process.is_of(&name) && process.is_command());
                let one = stroke.draw.checked_rem(commands.len());
                if let Some(command) = one.and_then(|index| commands.get(index)) {
                    command.kill();
                    deeds.commands_killed += 1;
                }
                Ok(())
            }
            (Deed::Freeze | Deed::Drain, State::Frozen(_) | State::Draining(_)) => Ok(()),
        }
    }

    /// One who has a lock, if somebody has: what happens to others when they are frozen is dull.
    async fn holding(&self, stroke: Stroke) -> Result<u64, ChaosError> {
        let locks = self.engine.locks().list_all();
        let owners: Vec<String> = locks.map_ok(|lock| lock.owner).try_collect().await?;
        let one = stroke.draw.checked_rem(owners.len());
        let owner = one.and_then(|index| owners.get(index)?.split('/').next());
        let is = |number: &u64| Some(Role::Holder.name(*number).as_str()) == owner;
        let number = (0..Role::Holder.count()).find(is);
        Ok(number.unwrap_or(stroke.number))
    }

    /// Wakes up those whose time has come.
    pub(super) async fn thaw(&mut self, now: Duration) -> Result<(), ChaosError> {
        for index in 0..self.cast.actors.len() {
            let actor = &self.cast.actors[index];
            if let State::Frozen(until) = actor.state
                && until <= now
            {
                let (name, woken) = (actor.name(), self.now());
                let store = self.engine.store().clone();
                self.suspects.lost_by(&name, store.as_ref(), woken).await?;
                self.cast.thaw(index)?;
            }
        }
        Ok(())
    }
}
