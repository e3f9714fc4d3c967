//! A lock keeps two from working at once, unless one of them is frozen and wakes up too late. The
//! token of the lock lets an outside system refuse that one.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use plimsoll::clock::{Clock, SystemClock};
use plimsoll::{Plimsoll, Token};

/// Something outside that knows nothing of locks. It remembers the highest token it has seen.
#[derive(Default)]
struct Bucket {
    newest: Token,
    content: String,
}

impl Bucket {
    fn write(&mut self, token: Token, content: &str) -> Result<(), String> {
        if token < self.newest {
            return Err(format!("token {token} is older than {}", self.newest));
        }
        self.newest = token;
        self.content = content.into();
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("locks.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let open = async || Plimsoll::open(&url)?.engine("media").await;
    // Two processes, as far as the file can tell.
    let (ada, bob) = (open().await?.locks(), open().await?.locks());
    let mut bucket = Bucket::default();

    println!("Ada takes the lock for a short time, and Bob is told who has it:");
    let ttl = Duration::from_secs(1);
    let hers = ada
        .lock("job:42")
        .owner("ada")
        .ttl(ttl)
        .try_acquire()
        .await?;
    let refused = bob.lock("job:42").owner("bob").try_acquire().await;
    println!(
        "  {}",
        refused
            .as_ref()
            .map_or_else(ToString::to_string, |_| String::new())
    );
    assert_eq!(
        refused.map_err(|error| error.code()).err(),
        Some("lock_not_acquired")
    );

    println!("Ada's process freezes: nothing of it runs, not even her renewals.");
    freeze(ttl);
    println!("  she wakes up. Is the lock still hers? {}", hers.is_held());
    assert!(!hers.is_held());

    println!("Bob takes it over, and writes:");
    let his = bob.lock("job:42").owner("bob").acquire().await?;
    bucket.write(his.token(), "by Bob")?;
    println!("  his token is {}, hers was {}", his.token(), hers.token());
    assert!(his.token() > hers.token());

    println!("Ada does not look, and writes too:");
    let late = bucket.write(hers.token(), "by Ada");
    println!("  refused: {}", late.clone().err().unwrap_or_default());
    assert!(late.is_err());
    assert_eq!(bucket.content, "by Bob");

    println!("Her release comes too late as well, and does not disturb Bob:");
    let late = hers.release().await.map_err(|error| error.to_string());
    println!("  {}", late.err().unwrap_or_default());
    assert!(his.is_held());
    his.release().await?;
    Ok(())
}

/// Blocks the only thread of this program.
#[allow(clippy::disallowed_methods)]
fn freeze(time: Duration) {
    let clock = SystemClock::new();
    let end = clock.monotonic() + time;
    while let Some(left) = end
        .checked_sub(clock.monotonic())
        .filter(|left| !left.is_zero())
    {
        std::thread::sleep(left);
    }
}
