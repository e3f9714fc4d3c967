//! Services follow their configuration, which is records: they have it in memory, and hear of every change
//! at once. One of them is restarted and goes on from its cursor; all see a record that is deleted, and one
//! whose time is up.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::time::Duration;

use futures::TryStreamExt;
use plimsoll::change::Removal;
use plimsoll::history::Place;
use plimsoll::record::Record;
use plimsoll::records::{Watch, WatchEvent};
use plimsoll::{Key, Plimsoll, Records, Result, Sweeper};

const CONFIG: &str = "config.";
/// How long the banner is shown. Nobody wants to wait for an hour here.
const SHOWN: Duration = Duration::from_secs(2);

/// A service, with its configuration as it knows it.
struct Service {
    name: &'static str,
    config: BTreeMap<Key, Record>,
    /// Where to go on after a restart, once it knows everything. It would keep this and the configuration in a file.
    cursor: Option<Place>,
}

impl Service {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            config: BTreeMap::new(),
            cursor: None,
        }
    }

    /// Everything and its changes, or what has changed since.
    fn watch(&mut self, records: &Records) -> Result<Watch> {
        let watch = records.watch(CONFIG)?;
        Ok(match self.cursor {
            None => {
                // What it has heard may be half of it, and is told again.
                self.config.clear();
                watch
            }
            Some(cursor) => watch.after(cursor),
        })
    }

    /// Takes in what it is told, until this is so.
    async fn follow(&mut self, watch: &mut Watch, until: fn(&Self) -> bool) -> Result<()> {
        while !until(self) {
            match watch.next().await? {
                WatchEvent::Snapshot(record) => self.adopt("has", record),
                WatchEvent::ReplayComplete { .. } => {}
                WatchEvent::Put { record, .. } => self.adopt("changes", record),
                WatchEvent::Removed { key, how, .. } => {
                    let why = match how {
                        Removal::Deleted => "was deleted",
                        Removal::Expired => "has expired",
                    };
                    println!("  {:<7} drops   {key}, which {why}", self.name);
                    self.config.remove(&key);
                }
                // Away for longer than the history is kept: everything is told again.
                WatchEvent::Restarted => self.config.clear(),
            }
            // What changes while the rest is still being told has a cursor, too, and would leave that out. So the watch is
            // asked: it has none to go on from before everything was told.
            self.cursor = watch.cursor();
        }
        Ok(())
    }

    fn adopt(&mut self, how: &str, record: Record) {
        let value = String::from_utf8_lossy(record.field("value").map_or(b"", |value| value));
        println!("  {:<7} {how:<7} {} = {value}", self.name, record.key);
        self.config.insert(record.key.clone(), record);
    }

    fn has(&self, key: &str) -> bool {
        self.config.keys().any(|known| known.as_str() == key)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or("memory:".into());
    let engine = Plimsoll::open(&url)?.engine("docs").await?;
    let records = engine.records();
    let set = async |key: &str, value: &str| records.set_field(key, "value", value).await;
    set("config.mail.host", "mx1").await?;
    set("config.web.port", "8080").await?;

    println!("Two services start:");
    let (mut api, mut mailer) = (Service::new("api"), Service::new("mailer"));
    let mut api_watch = api.watch(&records)?;
    let mut mailer_watch = mailer.watch(&records)?;
    api.follow(&mut api_watch, |it| it.cursor.is_some()).await?;
    mailer
        .follow(&mut mailer_watch, |it| it.cursor.is_some())
        .await?;

    println!("A change, and a banner for a while:");
    set("config.mail.host", "mx2").await?;
    records
        .put("config.banner", [("value", "back soon")], Some(SHOWN))
        .await?;
    api.follow(&mut api_watch, |it| it.has("config.banner"))
        .await?;
    mailer
        .follow(&mut mailer_watch, |it| it.has("config.banner"))
        .await?;

    println!("The mailer is restarted. Meanwhile:");
    drop(mailer_watch);
    set("config.web.port", "8443").await?;
    records.delete("config.mail.host").await?;
    set("config.mail.relay", "relay1").await?;
    api.follow(&mut api_watch, |it| it.has("config.mail.relay"))
        .await?;

    println!("It goes on from its cursor, with what it has missed:");
    let mut mailer_watch = mailer.watch(&records)?;
    mailer
        .follow(&mut mailer_watch, |it| it.has("config.mail.relay"))
        .await?;
    assert_eq!(mailer.config, api.config);

    println!("Its time is up. A sweeper, which runs somewhere, puts that on record:");
    engine.clock().sleep(SHOWN).await;
    assert_eq!(
        records.get("config.banner").await?,
        None,
        "gone for readers at once"
    );
    Sweeper::new(engine.clone()).pass_all().await;
    api.follow(&mut api_watch, |it| !it.has("config.banner"))
        .await?;
    mailer
        .follow(&mut mailer_watch, |it| !it.has("config.banner"))
        .await?;

    let stored: Vec<Record> = records.scan(CONFIG).stream().try_collect().await?;
    for service in [api, mailer] {
        assert!(service.config.into_values().eq(stored.clone()));
    }
    Ok(())
}
