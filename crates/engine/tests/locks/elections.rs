//! Elections: one leads, others take over, everybody can see who.

use futures::TryStreamExt;
use plimsoll_core::Result;
use plimsoll_core::clock::Clock;
use tokio::sync::mpsc;

use crate::world::{World, code, seconds, spawn};

#[tokio::test]
async fn a_leader_that_resigns_hands_over_at_once() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let leads = a.locks.election("chief", "ada").campaign().await?;
    let election = b.locks.election("chief", "bob");
    let waiting = spawn(async move { election.campaign().await });
    w.settle().await;
    let token = leads.token();
    leads.resign().await?;
    let leads = w.soon(waiting).await?;
    assert!(leads.is_held() && leads.token() > token);
    let seen = a.locks.election("chief", "ada").leader().await?.unwrap();
    assert_eq!(
        (seen.candidate.as_str(), seen.token),
        ("bob", leads.token())
    );
    Ok(())
}

#[tokio::test]
async fn a_leader_that_dies_is_followed_by_another() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let election = a.locks.election("chief", "ada").ttl(seconds(6.0));
    let dead = election.campaign().await?;
    let election = b.locks.election("chief", "bob");
    let waiting = spawn(async move { election.campaign().await });
    w.settle().await;
    a.cut_off();
    let (took, leads) = w.time(waiting).await;
    assert!(took >= seconds(6.0) && took <= seconds(7.0), "{took:?}");
    assert!(!dead.is_held());
    assert!(leads?.token() > dead.token());
    assert_eq!(code(dead.resign().await), "unavailable");
    Ok(())
}

#[tokio::test]
async fn everybody_can_see_who_leads_as_it_changes() -> Result<()> {
    let w = World::new();
    let [a, b, c] = [1, 2, 3].map(|seed| w.process(seed));
    let (seen, mut leaders) = mpsc::unbounded_channel();
    let mut observed = c.locks.election("chief", "nobody").observe()?;
    let observer = spawn(async move {
        while let Ok(Some(leader)) = observed.try_next().await {
            seen.send(leader.map(|leader| (leader.candidate, leader.token)))
                .ok();
        }
    });
    let mut next = async || {
        w.settle().await;
        leaders.try_recv().unwrap()
    };
    assert_eq!(next().await, None);
    let ada = a.locks.election("chief", "ada").campaign().await?;
    assert_eq!(next().await, Some(("ada".into(), ada.token())));
    // Renewals are no news.
    w.pass(seconds(100.0)).await;
    let waiting = spawn({
        let election = b.locks.election("chief", "bob");
        async move { election.campaign().await }
    });
    w.settle().await;
    ada.resign().await?;
    let bob = w.soon(waiting).await?;
    let mut news = next().await;
    if news.is_none() {
        // It may have looked while the lock was reserved.
        news = next().await;
    }
    assert_eq!(news, Some(("bob".into(), bob.token())));
    bob.resign().await?;
    assert_eq!(next().await, None);
    observer.abort();
    Ok(())
}

#[tokio::test]
async fn work_of_a_leader_stops_when_it_is_replaced_and_begins_anew_when_it_leads_again()
-> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let (begun, mut begins) = mpsc::unbounded_channel();
    let (election, clock) = (a.locks.election("chief", "ada"), w.clock.clone());
    let leading = spawn(async move {
        let mut times = 0;
        let lead = election.lead(|tenure| {
            begun.send(tenure).ok();
            times += 1;
            let (first, clock) = (times == 1, clock.clone());
            async move {
                if first {
                    clock.sleep(seconds(1_000_000.0)).await;
                }
                times
            }
        });
        lead.await
    });
    w.settle().await;
    let first = begins.try_recv().unwrap();
    w.pass(seconds(100.0)).await;
    assert!(first.is_held());
    b.locks.break_lock("chief").await?.unwrap();
    let (_, answer) = w.time(leading).await;
    assert_eq!(answer?, 2);
    let second = begins.try_recv().unwrap();
    assert!(second.token() > first.token());
    assert!(!first.is_held() && !second.is_held());
    assert!(b.locks.election("chief", "bob").leader().await?.is_none());
    Ok(())
}
