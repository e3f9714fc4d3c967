//! What the holder of a task says: endings, amendments, cancellations.

use bytes::Bytes;

use super::{
    BYTES_MAX, CENTURY, FIELDS_MAX, TEXT_MAX, amend, bad_texts, bytes, duration_out_of_range,
    names, out_of_range, refusal, refused, repeated, settle, too_late, too_long, too_many,
};
use crate::conformance::world::{World, complete, fail, fail_with, name};
use crate::error::{Error, Problem, Result};
use crate::limits::DURATION_MAX;
use crate::limits::ERROR_BYTES_KEPT;
use crate::record::Fields;
use crate::store::{Cancel, Commit, Ending, FailRetry, Retry, StoreExt, Write};
use crate::task::{Progress, Status};

cases!["bad_input":
    a_result_is_limited,
    the_text_of_a_settle_is_limited_and_holds_no_nul,
    a_settle_puts_a_task_off_by_a_hundred_years_at_most,
    the_reason_of_a_cancellation_is_limited_and_holds_no_nul,
    a_task_is_settled_once_in_a_commit,
    a_checkpoint_is_limited,
    the_attributes_of_an_amendment_are_limited,
    an_amendment_removes_a_limited_number_of_attributes,
    attributes_that_would_outgrow_their_task_are_refused,
    progress_is_at_most_a_hundred_percent_and_its_message_is_limited,
];

async fn a_result_is_limited(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let result = |len| Ending::Complete {
        result: Some(bytes(len)),
    };
    let problem = too_long("writes[0].result", BYTES_MAX + 1, BYTES_MAX);
    let bad = settle(&held, result(BYTES_MAX + 1));
    assert_eq!(refused(&w, bad).await?, problem);
    assert_eq!(w.task(task.id()).await?, task);
    w.store.settle(held, result(BYTES_MAX)).await?;
    let task = w.task(task.id()).await?;
    assert_eq!(task.result, Some(bytes(BYTES_MAX)));
    Ok(())
}

async fn the_text_of_a_settle_is_limited_and_holds_no_nul(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    for (text, problem) in bad_texts("writes[0].error") {
        let bad = settle(&held, fail(&text));
        assert_eq!(refused(&w, bad).await?, problem);
    }
    for (text, problem) in bad_texts("writes[0].reason") {
        let reason = Some(text);
        let release = Ending::Release {
            reason: reason.clone(),
        };
        assert_eq!(refused(&w, settle(&held, release)).await?, problem);
        let cancel = Ending::Cancel { reason };
        assert_eq!(refused(&w, settle(&held, cancel)).await?, problem);
    }
    assert_eq!(w.task(task.id()).await?, task);
    let longest = "é".repeat(TEXT_MAX / 2);
    w.store.settle(held, fail(&longest)).await?;
    let task = w.task(task.id()).await?;
    assert_eq!(task.errors[0].message, longest[..ERROR_BYTES_KEPT]);
    Ok(())
}

async fn a_settle_puts_a_task_off_by_a_hundred_years_at_most(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    for delay in too_late() {
        let bad = settle(&held, Ending::Snooze { delay });
        let problem = duration_out_of_range("writes[0].delay", delay, "0ns", CENTURY);
        assert_eq!(refused(&w, bad).await?, problem);
        let bad = settle(&held, fail_with("oops", FailRetry::After(delay)));
        let problem = duration_out_of_range("writes[0].retry", delay, "0ns", CENTURY);
        assert_eq!(refused(&w, bad).await?, problem);
        let retry = Retry {
            task: task.id(),
            force: true,
            delay,
        };
        let bad = Commit::of(Write::Retry(retry)).id(w.ids.commit());
        let problem = duration_out_of_range("writes[0].delay", delay, "0ns", CENTURY);
        assert_eq!(refusal(&w, bad).await?, problem);
    }
    assert_eq!(w.task(task.id()).await?, task);
    let latest = w.now().saturating_plus(DURATION_MAX);
    let delay = DURATION_MAX;
    let after = FailRetry::After(delay);
    for how in [Ending::Snooze { delay }, fail_with("oops", after)] {
        let (task, held) = w.claimed(w.new_task("work")).await?;
        w.store.settle(held, how).await?;
        assert_eq!(w.task(task.id()).await?.runnable_at, latest);
    }
    let retry = Write::Retry(Retry {
        task: task.id(),
        force: false,
        delay,
    });
    w.write_with_id(retry).await?;
    assert_eq!(w.task(task.id()).await?.runnable_at, latest);
    Ok(())
}

async fn the_reason_of_a_cancellation_is_limited_and_holds_no_nul(w: World) -> Result<()> {
    let task = w.submit(w.new_task("work")).await?;
    let cancel = |reason| {
        Write::Cancel(Cancel {
            task: task.id(),
            reason: Some(reason),
        })
    };
    for (text, problem) in bad_texts("writes[0].reason") {
        assert_eq!(refused(&w, cancel(text)).await?, problem);
    }
    assert_eq!(w.task(task.id()).await?, task);
    let longest = "é".repeat(TEXT_MAX / 2);
    w.store.write(cancel(longest.clone())).await?;
    assert_eq!(w.task(task.id()).await?.reason, Some(longest));
    Ok(())
}

async fn a_task_is_settled_once_in_a_commit(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let (_, other) = w.claimed(w.new_task("other")).await?;
    let bad = Commit::new()
        .write(settle(&held, complete()))
        .write(settle(&other, complete()))
        .write(settle(&held, fail("oops")));
    let problem = repeated("writes.settle", task.id());
    assert_eq!(refusal(&w, bad).await?, problem);
    assert_eq!(w.task(task.id()).await?, task);
    let good = Commit::new()
        .write(settle(&held, complete()))
        .write(settle(&other, complete()));
    w.store.commit_one(good).await?;
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    Ok(())
}

async fn a_checkpoint_is_limited(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let checkpoint = |len| amend(&held, |amend| amend.checkpoint = Some(bytes(len)));
    let problem = too_long("writes[0].checkpoint", BYTES_MAX + 1, BYTES_MAX);
    assert_eq!(refused(&w, checkpoint(BYTES_MAX + 1)).await?, problem);
    assert_eq!(w.task(task.id()).await?, task);
    w.store.write(checkpoint(BYTES_MAX)).await?;
    let task = w.task(task.id()).await?;
    assert_eq!(task.checkpoint, Some(bytes(BYTES_MAX)));
    Ok(())
}

async fn the_attributes_of_an_amendment_are_limited(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let set = |fields| amend(&held, |amend| amend.set = fields);
    let many = |count| -> Result<Fields> {
        let names = names(count)?.into_iter();
        Ok(names.map(|name| (name, Bytes::new())).collect())
    };
    let one = |len| Ok::<_, Error>(Fields::from([(name("f")?, bytes(len))]));
    for (fields, problem) in [
        (
            many(FIELDS_MAX + 1)?,
            too_many("writes[0].fields", FIELDS_MAX + 1, FIELDS_MAX),
        ),
        (
            one(BYTES_MAX + 1)?,
            too_long("writes[0].fields.f", BYTES_MAX + 1, BYTES_MAX),
        ),
        (
            one(BYTES_MAX)?,
            too_long("writes[0].fields", BYTES_MAX + 1, BYTES_MAX),
        ),
    ] {
        assert_eq!(refused(&w, set(fields)).await?, problem);
    }
    let both = Fields::from([(name("f")?, Bytes::new())]);
    let field = name("f")?;
    let twice = amend(&held, |amend| {
        amend.set = both;
        amend.unset.push(field);
    });
    let problem = repeated("writes[0].attributes", "f");
    assert_eq!(refused(&w, twice).await?, problem);
    assert_eq!(w.task(task.id()).await?, task);
    w.store.write(set(many(FIELDS_MAX)?)).await?;
    assert_eq!(w.task(task.id()).await?.attributes, many(FIELDS_MAX)?);
    Ok(())
}

async fn an_amendment_removes_a_limited_number_of_attributes(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let unset = |names| amend(&held, |amend| amend.unset = names);
    let problem = refused(&w, unset(names(FIELDS_MAX + 1)?)).await?.problem;
    let expected = Problem::TooMany {
        count: FIELDS_MAX + 1,
        max: FIELDS_MAX,
    };
    assert_eq!(problem, expected);
    assert_eq!(w.task(task.id()).await?, task);
    w.store.write(unset(names(FIELDS_MAX)?)).await?;
    Ok(())
}

async fn attributes_that_would_outgrow_their_task_are_refused(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let set = |field: &str, len| -> Result<Write> {
        let field = name(field)?;
        Ok(amend(&held, |amend| {
            amend.set.insert(field, bytes(len));
        }))
    };
    w.store.write(set("a", BYTES_MAX / 2)?).await?;
    let before = w.task(task.id()).await?;
    let answer = w.store.write(set("b", BYTES_MAX / 2 - 1)?).await;
    let problem = match answer {
        Err(Error::Invalid(invalid)) => {
            assert!(invalid.field.starts_with("writes[0]."), "{invalid}");
            invalid.problem
        }
        other => panic!("expected a refusal, got {other:?}"),
    };
    let expected = Problem::TooLong {
        bytes: BYTES_MAX + 1,
        max: BYTES_MAX,
    };
    assert_eq!(problem, expected);
    assert_eq!(w.task(task.id()).await?, before);
    w.store.write(set("b", BYTES_MAX / 2 - 2)?).await?;
    assert_eq!(w.task(task.id()).await?.attributes.len(), 2);
    Ok(())
}

async fn progress_is_at_most_a_hundred_percent_and_its_message_is_limited(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let progress = |percent, message| {
        amend(&held, |amend| {
            amend.progress = Some(Progress {
                percent,
                message,
                ..Progress::default()
            });
        })
    };
    for percent in [101, u8::MAX] {
        let problem = out_of_range("writes[0].progress.percent", percent, "0", "100");
        assert_eq!(refused(&w, progress(Some(percent), None)).await?, problem);
    }
    for (text, problem) in bad_texts("writes[0].progress.message") {
        assert_eq!(refused(&w, progress(None, Some(text))).await?, problem);
    }
    assert_eq!(w.task(task.id()).await?, task);
    let longest = Some("é".repeat(TEXT_MAX / 2));
    w.store.write(progress(Some(100), longest.clone())).await?;
    let shown = w.task(task.id()).await?.progress.clone();
    let shown = shown.map(|shown| (shown.percent, shown.message));
    assert_eq!(shown, Some((Some(100), longest)));
    Ok(())
}
