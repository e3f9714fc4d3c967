//! A disk that is full, read-only, or does not keep what it was given.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;
use plimsoll_core::error::Applied;
use plimsoll_core::store::{Counts, Scan};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Prefix, Result, Store};
use plimsoll_store_sqlite::SqliteStore;

use crate::{CHILD, open, put, start};

/// Runs a role in a folder of its own that is a small disk.
pub(crate) fn on_a_small_disk(role: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk)?;
    let program = std::env::current_exe()?;
    let script = format!(
        "mount -t tmpfs -o size=3m tmpfs '{disk}' && exec '{program}' '{disk}/plimsoll.db'",
        disk = disk.display(),
        program = program.display(),
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .env(CHILD, role)
        .output()
        .map_err(|error| format!("this test needs `unshare` to make a small disk: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    Err(format!("{said}{complained}").into())
}

pub(crate) fn full_disk() -> Result<(), Failed> {
    on_a_small_disk("full")
}

pub(crate) fn read_only() -> Result<(), Failed> {
    on_a_small_disk("read-only")
}

const FSYNC_FAILS: &str = "PLIMSOLL_FSYNC_FAILS";

pub(crate) fn failing_fsync() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let library = folder.path().join("failing_fsync.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/failing_fsync.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .status()?;
    assert!(compiled.success(), "the C compiler refused {source}");
    let output = Command::new(std::env::current_exe()?)
        .arg(folder.path().join("plimsoll.db"))
        .env(CHILD, "fsync")
        .env("LD_PRELOAD", &library)
        .env(FSYNC_FAILS, folder.path().join("fsync-fails"))
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let complained = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}{complained}", String::from_utf8_lossy(&output.stdout)).into())
}

pub(crate) async fn meet_a_failing_fsync(path: &Path) -> Result<()> {
    let trigger = std::env::var(FSYNC_FAILS).expect("where the trigger is");
    let store = open(path).await?;
    put(&store, 0).await?;
    std::fs::write(&trigger, "").expect("a trigger");
    let error = put(&store, 1)
        .await
        .expect_err("nothing can be made durable");
    let Error::Unavailable(unavailable) = &error else {
        panic!("{error}");
    };
    assert_eq!(unavailable.applied, Applied::Unknown, "{error}");
    std::fs::remove_file(&trigger).expect("the cause ends");
    put(&store, 2).await?;
    put(&store, 1).await?;
    assert_keys(&store, 3).await?;
    drop(store);
    assert_keys(&open(path).await?, 3).await
}

/// Every key up to `n` is there, and none after it.
async fn assert_keys(store: &SqliteStore, n: u64) -> Result<()> {
    let page = store.scan(Scan::new(Prefix::any(), 1_000)).await?;
    assert_eq!(page.rows.len() as u64, n);
    assert!(page.next.is_none());
    Ok(())
}

pub(crate) async fn fill_up(path: &Path) -> Result<()> {
    let ballast = path.with_file_name("ballast");
    std::fs::write(&ballast, vec![0; 1 << 20]).expect("there is room at first");
    let store = open(path).await?;
    let mut written = 0;
    let error = loop {
        match put(&store, written).await {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1_000, "the disk never got full");
    };
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert!(error.to_string().contains("nothing was applied"), "{error}");
    assert_keys(&store, written).await?;
    std::fs::remove_file(&ballast).expect("room again");
    for _ in 0..20 {
        put(&store, written).await?;
        written += 1;
    }
    assert_keys(&store, written).await?;
    drop(store);
    assert_keys(&open(path).await?, written).await
}

pub(crate) async fn turn_read_only(path: &Path) -> Result<()> {
    let disk = path.parent().expect("a folder");
    let mount = |options: &[&str], from: &Path, to: &Path| {
        let status = Command::new("mount")
            .args(options)
            .arg(from)
            .arg(to)
            .status();
        status.is_ok_and(|status| status.success())
    };
    let remount = |how: &str| {
        let options = format!("remount,{how},size=3m");
        let status = Command::new("mount")
            .args(["-o", &options])
            .arg(disk)
            .status();
        status.is_ok_and(|status| status.success())
    };
    // A disk on which files are open for writing does not turn read-only: another process writes.
    assert!(start("submit", path).wait().expect("it ends").success());
    assert!(remount("ro"), "the disk cannot be made read-only");
    let error = open(path).await.map(drop).expect_err("it is read-only");
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("make it writable"), "{error}");
    assert!(remount("rw"), "the disk cannot be made writable");
    assert!(mount(&["--bind"], path, path) && mount(&["-o", "remount,bind,ro"], path, path));
    let error = open(path)
        .await
        .map(drop)
        .expect_err("the file is read-only");
    assert!(
        error.to_string().contains("read-only: make it writable"),
        "{error}"
    );
    let unmounted = Command::new("umount").arg(path).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    let store = open(path).await?;
    put(&store, 0).await?;
    assert_keys(&store, 1).await?;
    let counts = store.counts(Counts::default()).await?;
    assert_eq!(counts[0].by_status[&Status::Pending], 1);
    Ok(())
}
