//! The fan-out of events, with threads that meet in every way a scheduler can think of: its own source,
//! built on the locks of a model checker instead of those of the operating system.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../src/history/fanout.rs"]
#[allow(dead_code, unreachable_pub)]
mod fanout;

/// What the source takes its locks from.
mod sync {
    pub(super) use shuttle::sync::{Arc, Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
}

use std::future::poll_fn;

use fanout::{Fanout, Reader, Share, Taken, Told};
use shuttle::{future, thread};
use sync::Arc;

type Numbers = Fanout<u64, u64, &'static str>;

const ITERATIONS: usize = 400;

fn told(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Told<u64, u64>> {
    let told = |event| Told {
        place: event,
        bytes: 1,
        event,
    };
    numbers.into_iter().map(told)
}

async fn take(
    reader: &mut Reader<u64, u64, &'static str>,
    into: &mut Vec<u64>,
) -> Taken<&'static str> {
    let mut found = Share::default();
    let taken = poll_fn(|context| reader.poll_take(context, 2, &mut found)).await;
    let left = found.left();
    assert_eq!(!left.is_empty(), taken == Taken::Events);
    assert!(left.len() <= 2 && left.iter().all(|told| told.place == told.event));
    into.extend(left.iter().map(|told| told.event));
    taken
}

/// Tries random schedules, and those that differ in few decisions from the straight one.
fn check(run: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(run.clone(), ITERATIONS);
    shuttle::check_pct(run, ITERATIONS, 3);
}

/// A reader that is never too slow is told everything, once, in order, and hears of the end: no way of
/// meeting leaves it waiting.
#[test]
fn every_reader_is_told_everything_once_and_in_order() {
    check(|| {
        let fanout = Arc::new(Numbers::new(0, 100, 100));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let mut reader = fanout.reader();
                thread::spawn(move || {
                    future::block_on(async {
                        let mut seen = Vec::new();
                        loop {
                            match take(&mut reader, &mut seen).await {
                                Taken::Events => {}
                                Taken::Gone => panic!("everything is kept"),
                                Taken::Over(end) => return (seen, end),
                            }
                        }
                    })
                })
            })
            .collect();
        let teller = fanout.clone();
        let teller = thread::spawn(move || {
            teller.tell(told(1..=2), 2);
            teller.tell(told(3..=3), 3);
            teller.tell(told([]), 3);
            teller.tell(told(4..=6), 6);
            teller.end("end");
        });
        teller.join().unwrap();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), (vec![1, 2, 3, 4, 5, 6], "end"));
        }
    });
}

/// One that is too slow is told so, and finds everything that it reads elsewhere followed by the rest:
/// no gap and no repeat, however both race.
#[test]
fn a_slow_reader_goes_on_where_it_was_without_gap_or_repeat() {
    check(|| {
        let fanout = Arc::new(Numbers::new(0, 2, 100));
        let mut reader = fanout.reader();
        let told_so_far = Arc::new(sync::Mutex::new(0));
        let elsewhere = told_so_far.clone();
        let reading = thread::spawn(move || {
            future::block_on(async {
                let mut seen = Vec::new();
                loop {
                    match take(&mut reader, &mut seen).await {
                        Taken::Events => {}
                        Taken::Over(_) => return seen,
                        Taken::Gone => loop {
                            let last = seen.last().copied().unwrap_or(0);
                            let upto = *elsewhere.lock().unwrap();
                            seen.extend(last + 1..=upto);
                            if reader.seek(upto.max(last)) {
                                break;
                            }
                        },
                    }
                }
            })
        });
        for number in 1..=7 {
            // As a store: it is in the history before anybody is told.
            *told_so_far.lock().unwrap() = number;
            fanout.tell(told([number]), number);
        }
        fanout.end("end");
        assert_eq!(reading.join().unwrap(), (1..=7).collect::<Vec<_>>());
    });
}

/// Readers come and go while events are told. Those that stay miss nothing that comes after they came.
#[test]
fn readers_that_come_and_go_keep_nobody_from_reading() {
    check(|| {
        let fanout = Arc::new(Numbers::new(0, 100, 100));
        let teller = fanout.clone();
        let teller = thread::spawn(move || {
            teller.tell(told(1..=1), 1);
            teller.tell(told(2..=3), 3);
            teller.end("end");
        });
        let passing = fanout.clone();
        let passing = thread::spawn(move || {
            let mut reader = passing.reader();
            let waker = futures::task::noop_waker();
            let mut context = std::task::Context::from_waker(&waker);
            let _ = reader.poll_take(&mut context, 1, &mut Share::default());
        });
        let mut reader = fanout.reader();
        let came_after = reader.passed();
        let seen = future::block_on(async {
            let mut seen = Vec::new();
            while take(&mut reader, &mut seen).await == Taken::Events {}
            seen
        });
        assert_eq!(seen, (came_after + 1..=3).collect::<Vec<_>>());
        passing.join().unwrap();
        teller.join().unwrap();
    });
}

/// Who tells need not be who wakes: whoever waits is woken for what was told before, and is not for nothing.
#[test]
fn one_tells_and_another_wakes() {
    check(|| {
        let fanout = Arc::new(Numbers::new(0, 100, 100));
        let mut reader = fanout.reader();
        let teller = fanout.clone();
        let teller = thread::spawn(move || {
            teller.keep(told(1..=2), 2);
            let waker = teller.clone();
            let waker = thread::spawn(move || waker.wake());
            let woken = teller.wake();
            assert!(woken + waker.join().unwrap() <= 1);
        });
        let mut seen = Vec::new();
        future::block_on(async {
            while seen.len() < 2 {
                assert_eq!(take(&mut reader, &mut seen).await, Taken::Events);
            }
        });
        assert_eq!(seen, [1, 2]);
        teller.join().unwrap();
    });
}

/// Readers are woken a few at a time while more is told and others come: whoever waits for what was told
/// is woken, or is counted as one who still waits.
#[test]
fn readers_are_woken_a_few_at_a_time() {
    check(|| {
        let fanout = Arc::new(Numbers::new(0, 100, 100));
        let readers: Vec<_> = (0..3).map(|_| fanout.reader()).collect();
        let read = |mut reader: Reader<u64, u64, &'static str>| {
            move || {
                let mut seen = Vec::new();
                future::block_on(async {
                    while seen.len() < 2 {
                        assert_eq!(take(&mut reader, &mut seen).await, Taken::Events);
                    }
                });
                assert_eq!(seen, [1, 2]);
            }
        };
        let readers: Vec<_> = readers.into_iter().map(read).map(thread::spawn).collect();
        let teller = fanout.clone();
        let teller = thread::spawn(move || {
            for number in 1..=2 {
                teller.keep(told([number]), number);
                // Until nobody is left who waits for it: nobody begins to, since it is there.
                while teller.awaited().0 > 0 {
                    let mut slot = Some(0);
                    while let Some(from) = slot {
                        slot = teller.wake_some(from, 1);
                        assert!(slot.is_none_or(|slot| slot > from));
                    }
                }
            }
        });
        teller.join().unwrap();
        assert_eq!(fanout.awaited(), (0, 0));
        readers.into_iter().for_each(|it| it.join().unwrap());
    });
}

/// One counts who waits, and for how much, and wakes no more than it wants to.
#[test]
fn those_who_wait_are_counted_with_what_they_wait_for() {
    let run = || {
        let fanout = Arc::new(Numbers::new(0, 100, 100));
        let waker = futures::task::noop_waker();
        let mut context = std::task::Context::from_waker(&waker);
        let mut readers: Vec<_> = (0..3).map(|_| fanout.reader()).collect();
        let mut wait = |reader: &mut Reader<u64, u64, &'static str>| {
            while reader
                .poll_take(&mut context, 9, &mut Share::default())
                .is_ready()
            {}
        };
        readers.iter_mut().for_each(&mut wait);
        assert_eq!(fanout.awaited(), (0, 0));
        fanout.keep(told(1..=2), 2);
        assert_eq!(fanout.awaited(), (3, 6));
        assert_eq!(fanout.wake_some(0, 2), Some(2));
        assert_eq!(fanout.awaited(), (1, 2));
        wait(&mut readers[0]);
        fanout.keep(told(3..=3), 3);
        assert_eq!(fanout.awaited(), (2, 1 + 3));
        assert_eq!(fanout.wake_some(2, 1), None);
        assert_eq!(fanout.awaited(), (1, 1));
    };
    // There is only one way.
    shuttle::check_random(run, 1);
}

/// A reader knows how far it has come, also where nothing was told.
#[test]
fn a_reader_knows_how_far_it_has_come() {
    check(|| {
        let fanout = Arc::new(Numbers::new(0, 100, 100));
        let mut reader = fanout.reader();
        let teller = fanout.clone();
        let teller = thread::spawn(move || {
            for number in 1..=4 {
                teller.tell(told([number]), number);
            }
            teller.tell(told([]), 5);
            teller.end("end");
        });
        let mut seen = Vec::new();
        future::block_on(async {
            while take(&mut reader, &mut seen).await == Taken::Events {
                assert_eq!(Some(&reader.passed()), seen.last());
                assert!(reader.reached() >= reader.passed());
            }
        });
        assert_eq!(seen, [1, 2, 3, 4]);
        assert_eq!((reader.passed(), reader.reached()), (5, 5));
        teller.join().unwrap();
    });
}

/// What one has taken stays as it was, whatever is told and forgotten meanwhile.
#[test]
fn a_share_does_not_change_while_more_is_told() {
    check(|| {
        // A batch has room for a dozen bytes, one for each event: it would grow if nobody held a share of it.
        let fanout = Arc::new(Numbers::new(0, 32, 100));
        let mut reader = fanout.reader();
        fanout.tell(told(1..=2), 2);
        let mut share = Share::default();
        let waker = futures::task::noop_waker();
        let mut context = std::task::Context::from_waker(&waker);
        let taken = reader.poll_take(&mut context, 9, &mut share);
        assert_eq!(taken, std::task::Poll::Ready(Taken::Events));
        let teller = fanout.clone();
        let teller = thread::spawn(move || {
            teller.tell(told(3..=4), 4);
            teller.tell(told(5..=39), 39);
        });
        let events = || share.left().iter().map(|told| told.event);
        assert!(events().eq(1..=2));
        thread::yield_now();
        assert!(events().eq(1..=2));
        teller.join().unwrap();
        assert_eq!(
            reader.poll_take(&mut context, 9, &mut share),
            std::task::Poll::Ready(Taken::Gone)
        );
        // It finds its way back into the middle of a batch.
        assert!(!reader.seek(6));
        assert!(reader.seek(7));
        let mut seen = Vec::new();
        future::block_on(take(&mut reader, &mut seen));
        assert_eq!(seen, [8, 9]);
    });
}

/// After a restart nobody goes on as if nothing were missing.
#[test]
fn a_restart_is_noticed_by_every_reader() {
    check(|| {
        let fanout = Arc::new(Numbers::new(0, 100, 100));
        let mut reader = fanout.reader();
        let teller = fanout.clone();
        let teller = thread::spawn(move || {
            teller.tell(told(1..=2), 2);
            teller.restart(5);
            teller.tell(told(6..=7), 7);
            teller.end("end");
        });
        let seen = future::block_on(async {
            let (mut seen, mut gone) = (Vec::new(), 0);
            loop {
                match take(&mut reader, &mut seen).await {
                    Taken::Events => {}
                    Taken::Over(_) => break,
                    Taken::Gone => {
                        gone += 1;
                        assert!(!reader.seek(seen.last().copied().unwrap_or(0)));
                        assert!(reader.seek(5));
                    }
                }
            }
            assert_eq!(gone, 1);
            seen
        });
        teller.join().unwrap();
        let rest = seen.strip_prefix(&[1, 2]).unwrap_or(&seen);
        assert_eq!(rest, [6, 7]);
    });
}

#[test]
fn what_is_kept_is_bounded_by_number_and_by_bytes() {
    shuttle::check_random(
        || {
            let kept = |events, bytes, sizes: &[usize]| {
                let fanout = Arc::new(Numbers::new(0, events, bytes));
                let mut reader = fanout.reader();
                let told = (1..).zip(sizes).map(|(event, bytes)| Told {
                    place: event,
                    bytes: *bytes,
                    event,
                });
                let last = sizes.len() as u64;
                fanout.tell(told, last);
                (0..=last)
                    .find(|after| reader.seek(*after))
                    .map(|after| last - after)
            };
            assert_eq!(kept(3, 100, &[1; 5]), Some(3));
            assert_eq!(kept(9, 10, &[4; 5]), Some(2));
            // One that is larger than everything is told nevertheless.
            assert_eq!(kept(9, 10, &[4, 40]), Some(1));
            assert_eq!(kept(0, 10, &[1; 3]), Some(1));
        },
        1,
    );
}

/// Wherever a reader begins, and however much it takes at once.
#[test]
fn events_are_read_across_the_borders_of_batches() {
    shuttle::check_random(
        || {
            // A batch has an eighth of what is kept: who holds an event does not hold everything.
            let fanout = Arc::new(Numbers::new(0, 150, 160));
            // Somebody holds a part of them, so that batches have all sizes.
            let mut held = Vec::new();
            let waker = futures::task::noop_waker();
            let mut context = std::task::Context::from_waker(&waker);
            for (first, last) in [(1, 3), (4, 100), (101, 101), (102, 200)] {
                let mut reader = fanout.reader();
                fanout.tell(told(first..=last), last);
                let mut share = Share::default();
                assert!(reader.poll_take(&mut context, 1, &mut share).is_ready());
                held.push(share);
            }
            let mut reader = fanout.reader();
            assert!(!reader.seek(49));
            for (after, max) in (50..=200).flat_map(|after| [(after, 1), (after, 7), (after, 99)]) {
                assert!(reader.seek(after));
                let (mut seen, mut share) = (Vec::new(), Share::default());
                while reader.poll_take(&mut context, max, &mut share).is_ready() {
                    assert!(share.left().len() <= max.min(20));
                    seen.extend(share.left().iter().map(|told| told.event));
                }
                assert!(seen.into_iter().eq(after + 1..=200), "{after}, {max}");
            }
        },
        1,
    );
}
