//! Submits: payloads, policies and what is nested in them.

use std::time::Duration;

use super::{
    BYTES_MAX, CENTURY, FIELDS_MAX, MILLISECOND, SECOND, TEXT_MAX, bad_texts, bytes, contradiction,
    duration_out_of_range, names, not_a_lifetime, open, out_of_range, refused, submit, too_late,
    too_long, too_many,
};
use crate::conformance::world::World;
use crate::error::{Error, Invalid, Problem, Result};
use crate::group::NewGroup;
use crate::limits::DURATION_MAX;
use crate::names::{GroupId, IdempotencyKey};
use crate::store::StoreExt;
use crate::task::{Backoff, KeyLifetime, NewTask, OnConflict, RetryPolicy, Status};

cases!["bad_input":
    a_payload_is_limited,
    labels_are_limited_in_number,
    a_trace_is_limited_and_holds_no_nul,
    a_task_is_due_within_a_hundred_years,
    an_attempt_timeout_is_from_a_millisecond_to_a_hundred_years,
    a_key_lifetime_is_from_a_millisecond_to_a_hundred_years,
    a_retry_policy_is_limited,
    tasks_are_nested_four_deep_at_most,
    a_nested_task_has_no_key,
    a_task_that_may_never_run_is_in_no_group,
    a_nested_task_is_checked_like_any_other,
    a_nested_task_has_an_id_of_its_own,
];

/// `count` tasks, each nested in the one before.
fn nest(w: &World, count: usize) -> NewTask {
    let innermost = w.new_task("nested");
    (1..count).fold(innermost, |inner, _| NewTask {
        on_failure: Some(Box::new(inner)),
        ..w.new_task("nested")
    })
}

async fn a_payload_is_limited(w: World) -> Result<()> {
    let bad = w.new_task(bytes(BYTES_MAX + 1));
    let id = bad.id;
    let problem = too_long("writes[0].payload", BYTES_MAX + 1, BYTES_MAX);
    assert_eq!(refused(&w, submit(bad)).await?, problem);
    assert_eq!(w.store.task(id).await?, None);
    let task = w.submit(w.new_task(bytes(BYTES_MAX))).await?;
    assert_eq!(task.spec.payload, bytes(BYTES_MAX));
    Ok(())
}

async fn labels_are_limited_in_number(w: World) -> Result<()> {
    let labelled = |count| -> Result<NewTask> {
        let labels = names(count)?.into_iter().map(|name| (name.clone(), name));
        Ok(NewTask {
            labels: labels.collect(),
            ..w.new_task("work")
        })
    };
    let problem = too_many("writes[0].labels", FIELDS_MAX + 1, FIELDS_MAX);
    let bad = submit(labelled(FIELDS_MAX + 1)?);
    assert_eq!(refused(&w, bad).await?, problem);
    let task = w.submit(labelled(FIELDS_MAX)?).await?;
    assert_eq!(task.spec.labels, labelled(FIELDS_MAX)?.labels);
    Ok(())
}

async fn a_trace_is_limited_and_holds_no_nul(w: World) -> Result<()> {
    let traced = |trace: String| NewTask {
        trace: Some(trace),
        ..w.new_task("work")
    };
    for (trace, problem) in bad_texts("writes[0].trace") {
        assert_eq!(refused(&w, submit(traced(trace))).await?, problem);
    }
    let trace = "é".repeat(TEXT_MAX / 2);
    let task = w.submit(traced(trace.clone())).await?;
    assert_eq!(task.spec.trace, Some(trace));
    Ok(())
}

async fn a_task_is_due_within_a_hundred_years(w: World) -> Result<()> {
    for delay in too_late() {
        let bad = submit(w.new_task("work").after(delay));
        let problem = duration_out_of_range("writes[0].due", delay, "0ns", CENTURY);
        assert_eq!(refused(&w, bad).await?, problem);
    }
    let task = w.submit(w.new_task("work").after(DURATION_MAX)).await?;
    assert_eq!(task.status, Status::Scheduled);
    assert_eq!(task.runnable_at, w.now().saturating_plus(DURATION_MAX));
    Ok(())
}

async fn an_attempt_timeout_is_from_a_millisecond_to_a_hundred_years(w: World) -> Result<()> {
    let timed = |timeout| NewTask {
        attempt_timeout: Some(timeout),
        ..w.new_task("work")
    };
    for timeout in not_a_lifetime() {
        let field = "writes[0].attempt_timeout";
        let problem = duration_out_of_range(field, timeout, "1ms", CENTURY);
        assert_eq!(refused(&w, submit(timed(timeout))).await?, problem);
    }
    for timeout in [MILLISECOND, DURATION_MAX] {
        let (task, _) = w.claimed(timed(timeout)).await?;
        let deadline = task.lease.clone().and_then(|lease| lease.deadline);
        assert_eq!(deadline, Some(w.now().saturating_plus(timeout)));
    }
    Ok(())
}

async fn a_key_lifetime_is_from_a_millisecond_to_a_hundred_years(w: World) -> Result<()> {
    let keyed = |key: &str, lifetime| -> Result<NewTask> {
        let (key, lifetime) = (IdempotencyKey::new(key)?, KeyLifetime::For(lifetime));
        Ok(w.new_task("work")
            .key_with(key, lifetime, OnConflict::Attach))
    };
    for lifetime in not_a_lifetime() {
        let bad = submit(keyed("bad", lifetime)?);
        let field = "writes[0].key.lifetime";
        let problem = duration_out_of_range(field, lifetime, "1ms", CENTURY);
        assert_eq!(refused(&w, bad).await?, problem);
    }
    assert_eq!(w.by_key("bad").await?, None);
    for (key, lifetime) in [("short", MILLISECOND), ("long", DURATION_MAX)] {
        let task = w.submit(keyed(key, lifetime)?).await?;
        assert_eq!(w.by_key(key).await?, Some(task));
    }
    Ok(())
}

async fn a_retry_policy_is_limited(w: World) -> Result<()> {
    let exponential = |first, factor, cap| RetryPolicy {
        backoff: Backoff::Exponential { first, factor, cap },
        ..RetryPolicy::default()
    };
    let fixed = |wait| RetryPolicy {
        backoff: Backoff::Fixed(wait),
        ..RetryPolicy::default()
    };
    let total = |total| RetryPolicy {
        total: Some(total),
        ..RetryPolicy::default()
    };
    let jitter = |jitter_percent| RetryPolicy {
        jitter_percent,
        ..RetryPolicy::default()
    };
    let late = |field: &str, value| duration_out_of_range(field, value, "0ns", CENTURY);
    let mut bad = Vec::new();
    for factor in [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -2.0,
        0.5,
        1.0_f64.next_down(),
        100.0_f64.next_up(),
        101.0,
    ] {
        let field = "writes[0].retry.backoff.factor";
        let problem = out_of_range(field, factor, "1", "100");
        bad.push((exponential(SECOND, factor, SECOND), problem));
    }
    for percent in [101, u8::MAX] {
        let field = "writes[0].retry.jitter_percent";
        bad.push((jitter(percent), out_of_range(field, percent, "0", "100")));
    }
    for wait in too_late() {
        let field = "writes[0].retry.backoff.first";
        bad.push((exponential(wait, 2.0, SECOND), late(field, wait)));
        let field = "writes[0].retry.backoff.cap";
        bad.push((exponential(SECOND, 2.0, wait), late(field, wait)));
        bad.push((fixed(wait), late("writes[0].retry.backoff", wait)));
        bad.push((total(wait), late("writes[0].retry.total", wait)));
    }
    for (policy, problem) in bad {
        let bad = submit(w.new_task("work").retry(policy));
        assert_eq!(refused(&w, bad).await?, problem);
    }
    for good in [
        exponential(Duration::ZERO, 1.0, Duration::ZERO),
        exponential(DURATION_MAX, 100.0, DURATION_MAX),
        fixed(Duration::ZERO),
        fixed(DURATION_MAX),
        total(Duration::ZERO),
        total(DURATION_MAX),
        jitter(0),
        jitter(100),
    ] {
        let task = w.submit(w.new_task("work").retry(good.clone())).await?;
        assert_eq!(task.spec.retry, good);
    }
    Ok(())
}

async fn tasks_are_nested_four_deep_at_most(w: World) -> Result<()> {
    let group = || Ok::<_, Error>(NewGroup::new(GroupId::new("g")?));
    for count in [5, 1_000] {
        let problem = too_many("writes[0].on_failure.on_failure", count - 1, 3);
        assert_eq!(refused(&w, submit(nest(&w, count))).await?, problem);
        let problem = too_many("writes[0].then.on_failure", count, 4);
        let bad = open(group()?.then(nest(&w, count)));
        assert_eq!(refused(&w, bad).await?, problem);
        let problem = too_many("writes[0].on_first_failure.on_failure", count, 4);
        let bad = open(group()?.on_first_failure(nest(&w, count)));
        assert_eq!(refused(&w, bad).await?, problem);
    }
    let deep = nest(&w, 4);
    let task = w.submit(deep.clone()).await?;
    assert_eq!(task.spec.on_failure, deep.on_failure);
    w.store.write(open(group()?.then(nest(&w, 4)))).await?;
    assert_eq!(w.group("g").await?.done, 0);
    Ok(())
}

async fn a_nested_task_has_no_key(w: World) -> Result<()> {
    let why = "a task submitted by the store has a fixed id instead";
    let keyed = || Ok::<_, Error>(w.new_task("nested").key(IdempotencyKey::new("key")?));
    let failing = |inner| NewTask {
        on_failure: Some(Box::new(inner)),
        ..w.new_task("outer")
    };
    let group = || Ok::<_, Error>(NewGroup::new(GroupId::new("g")?));
    for (bad, field) in [
        (submit(failing(keyed()?)), "on_failure.key"),
        (
            submit(failing(failing(keyed()?))),
            "on_failure.on_failure.key",
        ),
        (open(group()?.then(keyed()?)), "then.key"),
        (
            open(group()?.then(failing(keyed()?))),
            "then.on_failure.key",
        ),
        (
            open(group()?.on_first_failure(keyed()?)),
            "on_first_failure.key",
        ),
    ] {
        let problem = contradiction(&format!("writes[0].{field}"), why);
        assert_eq!(refused(&w, bad).await?, problem);
    }
    Ok(())
}

async fn a_task_that_may_never_run_is_in_no_group(w: World) -> Result<()> {
    let why = "a task that may never run cannot be a member";
    let other = GroupId::new("other")?;
    w.store.write(open(NewGroup::new(other.clone()))).await?;
    let member = || w.new_task("nested").group(other.clone());
    let failing = || NewTask {
        on_failure: Some(Box::new(member())),
        ..w.new_task("outer")
    };
    let own = GroupId::new("own")?;
    let group = || NewGroup::new(own.clone());
    for (bad, field) in [
        (submit(failing()), "on_failure.group"),
        (open(group().then(failing())), "then.on_failure.group"),
        (
            open(group().on_first_failure(member())),
            "on_first_failure.group",
        ),
    ] {
        let problem = contradiction(&format!("writes[0].{field}"), why);
        assert_eq!(refused(&w, bad).await?, problem);
    }
    let why = "must not be a member of its own group";
    let itself = w.new_task("then").group(own.clone());
    let bad = open(group().then(itself));
    let problem = contradiction("writes[0].then", why);
    assert_eq!(refused(&w, bad).await?, problem);
    assert_eq!(w.group("other").await?.spawned, 0);
    w.store.write(open(group().then(member()))).await?;
    assert_eq!(w.group("other").await?.spawned, 1);
    Ok(())
}

async fn a_nested_task_is_checked_like_any_other(w: World) -> Result<()> {
    let large = || w.new_task(bytes(BYTES_MAX + 1));
    let group = || Ok::<_, Error>(NewGroup::new(GroupId::new("g")?));
    let failing = |inner| NewTask {
        on_failure: Some(Box::new(inner)),
        ..w.new_task("outer")
    };
    let impatient = || w.new_task("nested").after(Duration::MAX);
    let traced = || NewTask {
        trace: Some("a\0b".into()),
        ..w.new_task("nested")
    };
    let long = |field| too_long(field, BYTES_MAX + 1, BYTES_MAX);
    let late = |field| duration_out_of_range(field, Duration::MAX, "0ns", CENTURY);
    let nul = |field| Invalid::new(field, Problem::Nul);
    for (bad, problem) in [
        (
            submit(failing(failing(large()))),
            long("writes[0].on_failure.on_failure.payload"),
        ),
        (
            submit(failing(impatient())),
            late("writes[0].on_failure.due"),
        ),
        (
            open(group()?.then(failing(large()))),
            long("writes[0].then.on_failure.payload"),
        ),
        (open(group()?.then(impatient())), late("writes[0].then.due")),
        (
            open(group()?.on_first_failure(large())),
            long("writes[0].on_first_failure.payload"),
        ),
        (
            open(group()?.on_first_failure(traced())),
            nul("writes[0].on_first_failure.trace"),
        ),
    ] {
        assert_eq!(refused(&w, bad).await?, problem);
    }
    Ok(())
}

async fn a_nested_task_has_an_id_of_its_own(w: World) -> Result<()> {
    // The store submits nothing under an id that is taken, so such a task would never run.
    let outer = w.new_task("outer");
    let same = NewTask {
        on_failure: Some(Box::new(NewTask {
            id: outer.id,
            ..w.new_task("on failure")
        })),
        ..outer
    };
    refused(&w, submit(same)).await?;
    let then = w.new_task("then");
    let on_first_failure = NewTask {
        id: then.id,
        ..w.new_task("on first failure")
    };
    let group = NewGroup::new(GroupId::new("g")?).then(then);
    refused(&w, open(group.on_first_failure(on_first_failure))).await?;
    Ok(())
}
