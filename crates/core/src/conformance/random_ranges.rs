//! Ranges after random writes: an index has what a look at all records finds, in the order of values.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::conformance::ranges::{index, ready};
use crate::conformance::scans::pages;
use crate::conformance::world::{World, name};
use crate::error::{Error, Result};
use crate::ids::Ids;
use crate::names::{Key, Name, Prefix};
use crate::record::{Fields, Record, integer};
use crate::store::{
    Commit, Compact, DeclareIndex, DropIndex, Merge, Put, Range, Scan, Store, StoreExt, Write,
};

cases!["random_ranges":
    ranges_agree_with_scans_after_random_writes if IntegerIndexes,
    ranges_agree_with_scans_after_indexes_were_filled_between_random_writes if IntegerIndexes,
    ranges_agree_with_scans_after_indexes_were_dropped_and_declared_again if IntegerIndexes,
];

/// They overlap, so that one write belongs to several, and one has all records.
const INDEXES: [(&str, &str); 4] = [("a.", "n"), ("a.1", "n"), ("a.", "m"), ("", "n")];

const FIELDS: [&str; 2] = ["n", "m"];

/// Keys that have a blank, as places do, and keys that only look as if they had the prefix.
const OTHERS: [&str; 6] = ["a.1 5", "a.\u{ff}", "a", "a-1", "a/1", "b.1"];

const NO_INTEGERS: [&str; 8] = [
    "",
    "none",
    "01",
    "-0",
    "+1",
    "1.0",
    " 1",
    "9223372036854775808",
];

/// How long records have that do not stay for ever, in seconds.
const LIFE_MAX: u64 = 20;

/// A namespace that is written to at random: always the same from the same seed.
struct Writing {
    w: World,
    /// What one handle writes, the other must know, too.
    stores: [Arc<dyn Store>; 2],
    random: Ids,
    seed: u64,
    /// How many records ranges have answered.
    answered: usize,
}

impl Writing {
    async fn start(w: World, seed: u64) -> Result<Self> {
        Ok(Self {
            stores: [w.store.clone(), w.second().await?],
            random: Ids::seeded(seed, Arc::new(w.clock.clone())),
            w,
            seed,
            answered: 0,
        })
    }

    fn pick(&self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap_or(0)
    }

    fn some_store(&self) -> &dyn Store {
        self.stores[self.pick(2)].as_ref()
    }

    fn some_key(&self) -> Result<Key> {
        Ok(match self.pick(30) {
            place @ 0..24 => Key::new(format!("a.{place:02}"))?,
            place => Key::new(OTHERS[place - 24])?,
        })
    }

    fn some_field(&self) -> Result<Name> {
        name(FIELDS[self.pick(4) / 3])
    }

    /// Few, so that several records have the same.
    fn some_integer(&self) -> i64 {
        match self.pick(20) {
            0 => i64::MIN,
            1 => i64::MAX,
            _ => self.random.below(11) as i64 - 5,
        }
    }

    fn some_value(&self) -> Bytes {
        match self.pick(5) {
            0 => NO_INTEGERS[self.pick(NO_INTEGERS.len())].into(),
            _ => self.some_integer().to_string().into(),
        }
    }

    /// Fields of any size, for a store may keep small and large records in different ways.
    fn some_fields(&self) -> Result<Fields> {
        let padding = vec![b'x'; [0, 100, 500, 520, 3_000][self.pick(5)]];
        let mut fields = Fields::from([(name("padding")?, padding.into())]);
        for _ in 0..=self.pick(3) {
            fields.insert(self.some_field()?, self.some_value());
        }
        Ok(fields)
    }

    fn some_life(&self) -> Option<Duration> {
        let seconds = 1 + self.random.below(LIFE_MAX);
        (self.pick(2) == 0).then_some(Duration::from_secs(seconds))
    }

    fn some_write(&self) -> Result<Write> {
        let (key, field) = (self.some_key()?, self.some_field()?);
        let merge = Merge::new(key.clone());
        Ok(match self.pick(14) {
            0..=3 => Write::Put(Put {
                ttl: self.some_life(),
                ..Put::new(key, self.some_fields()?)
            }),
            4 => Write::Delete(key),
            5 => Write::ExpireRecord(key),
            6 => Write::Touch(key, self.some_life()),
            7 => Write::Merge(merge.set(self.some_fields()?)),
            8 => Write::Merge(merge.set(Fields::from([(field, self.some_value())]))),
            9 => Write::Merge(merge.unset(field)),
            10 => Write::Merge(merge.unset(name("padding")?).add(field, 0)),
            11 => Write::Merge(merge.add(field, self.some_integer())),
            12 => Write::Merge(merge.raise(field, self.some_integer())),
            _ => Write::Merge(
                merge
                    .unset(name("n")?)
                    .raise(name("m")?, self.some_integer()),
            ),
        })
    }

    /// Makes about so many writes, several of them in one commit, and lets some time pass.
    async fn write(&self, about: usize) -> Result<()> {
        let mut written = 0;
        while written < about {
            match self.pick(16) {
                // Rather often, and seldom swept: many that have expired are still there.
                0..=2 => {
                    let passed = self.random.below(LIFE_MAX / 3);
                    self.w.advance(Duration::from_secs(passed));
                }
                3 => {
                    let swept = self.some_store().sweep(1 + self.pick(4), &self.random);
                    assert_eq!(swept.await?.errors, [], "seed {}", self.seed);
                }
                _ => written += self.commit().await?,
            }
        }
        Ok(())
    }

    async fn commit(&self) -> Result<usize> {
        let mut commits = Vec::new();
        for _ in 0..1 + self.pick(2) {
            let mut commit = Commit::new().id(self.random.commit());
            for _ in 0..1 + self.pick(3) {
                commit.writes.push(self.some_write()?);
            }
            commits.push(commit);
        }
        let written = commits.iter().map(|commit| commit.writes.len()).sum();
        for answer in self.some_store().commit(commits).await {
            match answer {
                // A touch of what is not there, or a sum with what is not an integer: it leaves nothing.
                Ok(_) | Err(Error::NotFound(_) | Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    async fn declare(&self) -> Result<()> {
        for (prefix, field) in INDEXES {
            ready(&self.w, prefix, field).await?;
        }
        Ok(())
    }

    /// Fills the indexes in small steps, with writes between them.
    async fn fill(&self) -> Result<()> {
        for (prefix, field) in INDEXES {
            loop {
                let declare = DeclareIndex {
                    index: index(prefix, field)?,
                    limit: 1 + self.pick(4),
                };
                if self.some_store().declare_index(declare).await?.ready {
                    break;
                }
                self.write(2).await?;
            }
        }
        Ok(())
    }

    /// Compares every index with the records, in some ranges, each answered whole and in small pages.
    async fn compare(&mut self) -> Result<()> {
        for (prefix, field) in INDEXES {
            let all = Scan::new(Prefix::new(prefix)?, 1_000);
            let records = pages(self.some_store(), all.clone()).await?.concat();
            let bound = || (self.pick(4) > 0).then(|| self.some_integer());
            let some = || -> Result<Range> {
                Ok(Range {
                    from: bound(),
                    before: bound(),
                    ..Range::new(name(field)?)
                })
            };
            for range in [Range::new(name(field)?), some()?, some()?] {
                let expected = in_range(&records, &range);
                for limit in [1_000, 1 + self.pick(6)] {
                    let scan = Scan {
                        limit,
                        ..all.clone().range(range.clone())
                    };
                    let context = format!("seed {}: {scan:?}", self.seed);
                    let found = pages(self.some_store(), scan).await?.concat();
                    // The places first, for records are too long to read.
                    assert_eq!(places(&found, field), places(&expected, field), "{context}");
                    assert_eq!(found, expected, "{context}");
                    self.answered += found.len();
                }
            }
        }
        Ok(())
    }

    /// Writes at random, and compares after every dozen.
    async fn write_and_compare(&mut self, dozens: usize) -> Result<()> {
        for _ in 0..dozens {
            self.write(12).await?;
            self.compare().await?;
        }
        Ok(())
    }
}

fn place(record: &Record, field: &str) -> Option<(i64, Key)> {
    Some((integer(record.field(field)?)?, record.key.clone()))
}

fn places(records: &[Record], field: &str) -> Vec<Option<(i64, Key)>> {
    records.iter().map(|record| place(record, field)).collect()
}

/// What a range should answer, from all the records.
fn in_range(records: &[Record], range: &Range) -> Vec<Record> {
    let field = range.field.as_str();
    let belongs = |record: &&Record| {
        place(record, field).is_some_and(|(value, _)| {
            range.from.is_none_or(|from| value >= from)
                && range.before.is_none_or(|before| value < before)
        })
    };
    let mut found: Vec<Record> = records.iter().filter(belongs).cloned().collect();
    found.sort_by_key(|record| place(record, field));
    found
}

async fn ranges_agree_with_scans_after_random_writes(w: World) -> Result<()> {
    let mut writing = Writing::start(w, 1).await?;
    writing.declare().await?;
    writing.write_and_compare(30).await?;
    assert!(writing.answered > 1_000, "{} records", writing.answered);
    Ok(())
}

async fn ranges_agree_with_scans_after_indexes_were_filled_between_random_writes(
    w: World,
) -> Result<()> {
    let mut writing = Writing::start(w, 2).await?;
    writing.write(180).await?;
    writing.fill().await?;
    writing.compare().await?;
    writing.write_and_compare(15).await?;
    assert!(writing.answered > 1_000, "{} records", writing.answered);
    Ok(())
}

async fn ranges_agree_with_scans_after_indexes_were_dropped_and_declared_again(
    w: World,
) -> Result<()> {
    let mut writing = Writing::start(w, 3).await?;
    for round in 0..6 {
        writing.fill().await?;
        writing.write_and_compare(4).await?;
        for (prefix, field) in INDEXES {
            let index = index(prefix, field)?;
            let dropped = writing.some_store().drop_index(DropIndex { index }).await?;
            assert!(dropped.existed);
        }
        // What a dropped index had may be there still, or some of it, or nothing.
        if round % 3 > 0 {
            let compact = Compact {
                limit: 10_usize.pow(round % 3),
                ..Compact::default()
            };
            writing.some_store().compact(compact).await?;
        }
        writing.write(6).await?;
    }
    assert!(writing.answered > 1_000, "{} records", writing.answered);
    Ok(())
}
