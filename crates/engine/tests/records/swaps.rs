//! Every expectation and every write of a swap, and commits over several records, on each store.

use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::ids::CommitId;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Guard, Merge, Tasks};
use plimsoll_core::task::{KeyLifetime, NewTask, OnConflict};
use plimsoll_core::{Error, IdempotencyKey, Key, Name, Result};
use plimsoll_engine::records::{Swap, Swapped};

use crate::world::{MINUTE, World, code, on_each_store};

on_each_store!(
    each_expectation_holds_or_is_named,
    all_fields_must_be_as_expected,
    each_write_can_follow,
    writes_take_effect_in_order,
    writes_to_one_field_take_effect_one_after_another,
    what_no_integer_holds_is_refused_with_its_field,
    a_swap_may_only_look,
    a_commit_over_records_is_all_or_nothing,
    a_commit_with_an_id_can_be_asked_for_again,
    a_task_is_submitted_with_the_rest_or_not_at_all,
    a_task_under_a_taken_key_goes_by_its_conflict_policy,
);

/// Each as it is stored, if it is.
async fn tasks(w: &World, tasks: [&NewTask; 3]) -> Result<[bool; 3]> {
    let ids = tasks.map(|task| task.id).to_vec();
    let found = w.bare.tasks(Tasks { ids }).await?;
    Ok(std::array::from_fn(|n| found[n].is_some()))
}

async fn a_task_is_submitted_with_the_rest_or_not_at_all(w: World) -> Result<()> {
    let task = || w.tasks.task("q", "k", "x");
    let [lost, refused, alone] = [task()?, task()?, task()?];
    // It is submitted once, although the answer is lost.
    w.plan.next(Method::Commit, Fault::ErrorAfter);
    let swap = Swap::new("a").when_absent().set("x", 1);
    let done = w.records.swap(swap.submit(lost.clone())).await?;
    let record = w.others.get("a").await?.unwrap();
    assert_eq!(done, Swapped::Done(Some(record.revision)));
    let swap = Swap::new("a").when_absent().submit(refused.clone());
    assert!(!w.records.swap(swap.set("x", 2)).await?.is_done());
    let only = w.records.swap(Swap::new("a").submit(alone.clone())).await?;
    assert_eq!(only, Swapped::Done(None));
    let there = tasks(&w, [&lost, &refused, &alone]).await?;
    assert_eq!(there, [true, false, true]);
    assert_eq!(w.others.get("a").await?.unwrap(), record);
    Ok(())
}

async fn a_task_under_a_taken_key_goes_by_its_conflict_policy(w: World) -> Result<()> {
    let key: IdempotencyKey = "once".try_into()?;
    let first = w.tasks.task("q", "k", "x")?.key(key.clone());
    w.tasks.submit(first.clone()).await?;
    let under = |conflict| {
        let task = w.tasks.task("q", "k", "x")?;
        Ok::<_, Error>(task.key_with(key.clone(), KeyLifetime::WhileActive, conflict))
    };
    let (attached, rejected) = (under(OnConflict::Attach)?, under(OnConflict::Reject)?);
    let swap = |task: &NewTask| Swap::new("a").add("n", 1).submit(task.clone());
    assert!(w.records.swap(swap(&attached)).await?.is_done());
    assert_eq!(code(w.records.swap(swap(&rejected)).await), "key_taken");
    let there = tasks(&w, [&first, &attached, &rejected]).await?;
    assert_eq!(there, [true, false, false]);
    assert_eq!(w.text("a", "n").await?.unwrap(), "1");
    Ok(())
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn field(name: &str) -> Name {
    Name::new(name).unwrap()
}

async fn each_expectation_holds_or_is_named(w: World) -> Result<()> {
    let there = w.records.put("there", [("x", "1")], None).await?;
    let other = there.next();
    let cases = [
        (Swap::new("there").when("x", "1"), None),
        (
            Swap::new("there").when("x", "2"),
            Some(Guard::Field(key("there"), field("x"), Some("2".into()))),
        ),
        (Swap::new("there").when_unset("y"), None),
        (Swap::new("absent").when_unset("y"), None),
        (
            Swap::new("there").when_unset("x"),
            Some(Guard::Field(key("there"), field("x"), None)),
        ),
        (Swap::new("absent").when_absent(), None),
        (
            Swap::new("there").when_absent(),
            Some(Guard::RecordAbsent(key("there"))),
        ),
        (Swap::new("there").when_present(), None),
        (
            Swap::new("absent").when_present(),
            Some(Guard::RecordPresent(key("absent"))),
        ),
        (Swap::new("there").when_at(there), None),
        (
            Swap::new("there").when_at(other),
            Some(Guard::RecordAt(key("there"), other)),
        ),
    ];
    for (swap, refusal) in cases {
        let expected = refusal.map_or(Swapped::Done(None), Swapped::Refused);
        assert_eq!(w.records.swap(swap).await?, expected);
    }
    Ok(())
}

async fn all_fields_must_be_as_expected(w: World) -> Result<()> {
    w.records.put("a", [("x", "1"), ("y", "2")], None).await?;
    let swap = |y: &str| {
        let expecting = Swap::new("a").when("x", "1").when("y", y).when_unset("z");
        expecting.set("x", "new").unset("y").set("z", "3")
    };
    let refused = Guard::Field(key("a"), field("y"), Some("3".into()));
    assert_eq!(w.records.swap(swap("3")).await?, Swapped::Refused(refused));
    let untouched = w.records.get("a").await?.unwrap().fields;
    assert_eq!(untouched, fields([("x", "1"), ("y", "2")])?);
    let Swapped::Done(Some(revision)) = w.records.swap(swap("2")).await? else {
        panic!("all of it held");
    };
    let record = w.records.get("a").await?.unwrap();
    assert_eq!(record.revision, revision);
    assert_eq!(record.fields, fields([("x", "new"), ("z", "3")])?);
    Ok(())
}

async fn each_write_can_follow(w: World) -> Result<()> {
    w.records.put("a", [("n", "1")], None).await?;
    let swap = Swap::new("a").when("n", "1").add("n", 4).raise("m", 7);
    assert!(w.records.swap(swap).await?.is_done());
    let found = w.records.get("a").await?.unwrap().fields;
    assert_eq!(found, fields([("m", "7"), ("n", "5")])?);

    let swap = Swap::new("a")
        .when_present()
        .put([("x", "1")], Some(MINUTE));
    assert!(w.records.swap(swap).await?.is_done());
    assert_eq!(w.records.ttl("a").await?, Some(MINUTE));

    let swap = Swap::new("a").when("x", "1").touch(Some(2 * MINUTE));
    assert!(w.records.swap(swap).await?.is_done());
    assert_eq!(w.records.ttl("a").await?, Some(2 * MINUTE));
    let persist = w.records.swap(Swap::new("a").touch(None)).await?;
    assert!(persist.is_done());
    assert_eq!(w.records.ttl("a").await?, None);

    let swap = Swap::new("a").when("x", "1").delete();
    assert_eq!(w.records.swap(swap).await?, Swapped::Done(None));
    assert_eq!(w.records.get("a").await?, None);
    let touch = w.records.swap(Swap::new("a").touch(None)).await;
    assert_eq!(code(touch), "record_not_found");
    Ok(())
}

async fn writes_take_effect_in_order(w: World) -> Result<()> {
    let swap = Swap::new("a")
        .set("old", "1")
        .put([("n", 1)], None)
        .add("n", 1);
    assert!(w.records.swap(swap).await?.is_done());
    let found = w.records.get("a").await?.unwrap().fields;
    assert_eq!(found, fields([("n", "2")])?);
    let swap = Swap::new("a").set("x", "1").delete();
    assert_eq!(w.records.swap(swap).await?, Swapped::Done(None));
    assert_eq!(w.records.get("a").await?, None);
    Ok(())
}

async fn writes_to_one_field_take_effect_one_after_another(w: World) -> Result<()> {
    let swap = Swap::new("a")
        .add("twice", 1)
        .add("twice", 1)
        .raise("up", 700)
        .raise("up", 300)
        .set("set", 5)
        .add("set", 1)
        .set("last", "1")
        .set("last", "2")
        .set("gone", "1")
        .unset("gone")
        .unset("back")
        .raise("back", 9)
        .add("back", -2);
    assert!(w.records.swap(swap).await?.is_done());
    let found = w.records.get("a").await?.unwrap().fields;
    let expected = [
        ("back", "7"),
        ("last", "2"),
        ("set", "6"),
        ("twice", "2"),
        ("up", "700"),
    ];
    assert_eq!(found, fields(expected)?);
    let merge = Merge::new(key("b"))
        .add(field("twice"), 1)
        .add(field("twice"), 1)
        .raise(field("up"), 700)
        .raise(field("up"), 300);
    let merged = w.records.merge(merge).await?.fields;
    assert_eq!(merged, fields([("twice", "2"), ("up", "700")])?);
    Ok(())
}

async fn what_no_integer_holds_is_refused_with_its_field(w: World) -> Result<()> {
    let swap = Swap::new("a").add("n", i64::MAX).add("n", 1);
    let refused = w.records.swap(swap).await.unwrap_err();
    assert_eq!(refused.code(), "overflow");
    assert!(refused.to_string().contains("field n"), "{refused}");
    let merge = Merge::new(key("a"))
        .add(field("n"), i64::MAX)
        .add(field("n"), 1);
    let refused = w.records.merge(merge).await.unwrap_err();
    assert_eq!(refused.code(), "invalid");
    assert!(refused.to_string().contains("names n twice"), "{refused}");
    assert_eq!(w.records.get("a").await?, None);
    let swap = Swap::new("a").add("n", i64::MAX).add("n", -1).add("n", 1);
    assert!(w.records.swap(swap).await?.is_done());
    Ok(())
}

async fn a_swap_may_only_look(w: World) -> Result<()> {
    let before = w.records.put("a", [("x", "1")], None).await?;
    let looked = w.records.swap(Swap::new("a").when("x", "1")).await?;
    assert_eq!(looked, Swapped::Done(None));
    assert_eq!(w.records.get("a").await?.unwrap().revision, before);
    Ok(())
}

async fn a_commit_over_records_is_all_or_nothing(w: World) -> Result<()> {
    w.records.put("ada", [("balance", 100)], None).await?;
    let transfer = |balance: i64| {
        [
            Swap::new("ada")
                .when("balance", balance)
                .add("balance", -30),
            Swap::new("bob").add("balance", 30),
            Swap::new("audit").when_absent().set("of", "ada"),
        ]
    };
    let refused = Guard::Field(key("ada"), field("balance"), Some("99".into()));
    let answer = w.records.commit(transfer(99)).await?;
    assert_eq!(answer, Swapped::Refused(refused));
    assert_eq!(w.records.get("bob").await?, None);

    let Swapped::Done(revisions) = w.records.commit(transfer(100)).await? else {
        panic!("all of it held");
    };
    let records = w.records.get_many(["ada", "bob", "audit"]).await?;
    let found: Vec<_> = (records.iter().flatten())
        .map(|record| Some(record.revision))
        .collect();
    assert_eq!(revisions, found);
    let refused = w.records.commit(transfer(70)).await?;
    assert_eq!(refused, Swapped::Refused(Guard::RecordAbsent(key("audit"))));
    assert_eq!(w.text("ada", "balance").await?.unwrap(), "70");
    assert_eq!(w.text("bob", "balance").await?.unwrap(), "30");
    Ok(())
}

async fn a_commit_with_an_id_can_be_asked_for_again(w: World) -> Result<()> {
    let id = CommitId::from_u128(7);
    let add = || [Swap::new("a").when_absent().add("n", 1)];
    let first = w.records.commit_as(id, add()).await?;
    assert!(first.is_done());
    // Another process asks what became of it.
    assert_eq!(w.others.commit_as(id, add()).await?, first);
    assert_eq!(w.text("a", "n").await?.unwrap(), "1");
    assert!(!w.records.commit(add()).await?.is_done());
    Ok(())
}
