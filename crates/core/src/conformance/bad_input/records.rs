//! Records: values, fields, merges and times to live.

use bytes::Bytes;

use super::{
    BYTES_MAX, CENTURY, FIELDS_MAX, MILLISECOND, bytes, duration_out_of_range, names,
    not_a_lifetime, put, refusal, refused, repeated, too_long, too_many,
};
use crate::conformance::world::{World, conflict, name};
use crate::error::{Conflict, Error, Problem, Result};
use crate::limits::DURATION_MAX;
use crate::names::Key;
use crate::record::Fields;
use crate::store::{Commit, Merge, Put, Start, StoreExt, Write};

cases!["bad_input":
    the_value_of_a_field_is_limited,
    a_record_is_limited_as_a_whole,
    a_record_has_a_limited_number_of_fields,
    a_merge_that_would_outgrow_its_record_is_a_conflict,
    a_merge_names_each_field_once,
    a_merge_names_a_limited_number_of_fields,
    a_time_to_live_is_from_a_millisecond_to_a_hundred_years,
];

async fn the_value_of_a_field_is_limited(w: World) -> Result<()> {
    let problem = too_long("writes[0].fields.f", BYTES_MAX + 1, BYTES_MAX);
    assert_eq!(refused(&w, put("k", BYTES_MAX + 1)?).await?, problem);
    let set = Fields::from([(name("f")?, bytes(BYTES_MAX + 1))]);
    let merge = Merge::new(Key::new("k")?).set(set);
    assert_eq!(refused(&w, Write::Merge(merge)).await?, problem);
    assert_eq!(w.record("k").await?, None);
    Ok(())
}

async fn a_record_is_limited_as_a_whole(w: World) -> Result<()> {
    let problem = too_long("writes[0].fields", BYTES_MAX + 1, BYTES_MAX);
    let halves = |second: usize| -> Result<Fields> {
        let half = BYTES_MAX / 2 - 1;
        Ok(Fields::from([
            (name("a")?, bytes(half)),
            (name("b")?, bytes(second)),
        ]))
    };
    let (fits, exceeds) = (halves(BYTES_MAX / 2 - 1)?, halves(BYTES_MAX / 2)?);
    let key = Key::new("k")?;
    let bad = Write::Put(Put::new(key.clone(), exceeds.clone()));
    assert_eq!(refused(&w, bad).await?, problem);
    let bad = Write::Merge(Merge::new(key.clone()).set(exceeds));
    assert_eq!(refused(&w, bad).await?, problem);
    let good = Write::Put(Put::new(key, fits.clone()));
    w.store.write(good).await?;
    assert_eq!(w.record("k").await?.map(|record| record.fields), Some(fits));
    Ok(())
}

async fn a_record_has_a_limited_number_of_fields(w: World) -> Result<()> {
    let empty = |count| -> Result<Fields> {
        let names = names(count)?.into_iter();
        Ok(names.map(|name| (name, Bytes::new())).collect())
    };
    let key = Key::new("k")?;
    let problem = too_many("writes[0].fields", FIELDS_MAX + 1, FIELDS_MAX);
    let bad = Write::Put(Put::new(key.clone(), empty(FIELDS_MAX + 1)?));
    assert_eq!(refused(&w, bad).await?, problem);
    let bad = Write::Merge(Merge::new(key.clone()).set(empty(FIELDS_MAX + 1)?));
    assert_eq!(refused(&w, bad).await?, problem);
    let good = Write::Put(Put::new(key, empty(FIELDS_MAX)?));
    w.store.write(good).await?;
    let record = w.record("k").await?;
    assert_eq!(record.map(|record| record.fields), Some(empty(FIELDS_MAX)?));
    Ok(())
}

async fn a_merge_that_would_outgrow_its_record_is_a_conflict(w: World) -> Result<()> {
    let key = Key::new("k")?;
    let set = |field: &str, value: Bytes| -> Result<Write> {
        let fields = Fields::from([(name(field)?, value)]);
        Ok(Write::Merge(Merge::new(key.clone()).set(fields)))
    };
    let too_large = |problem| Conflict::TooLarge {
        key: key.clone(),
        problem,
    };
    let long = too_large(Problem::TooLong {
        bytes: BYTES_MAX + 1,
        max: BYTES_MAX,
    });
    w.store.write(put("k", BYTES_MAX - 6)?).await?;
    w.store.write(set("n", Bytes::from("9999"))?).await?;
    let (full, start) = (w.record("k").await?, Start::After(w.history().await?.next));
    let answer = w.store.write(set("n", Bytes::from("99999"))?).await;
    assert_eq!(conflict(answer), long);
    let add = Merge::new(key.clone()).add(name("n")?, 1);
    let answer = w.write_with_id(Write::Merge(add)).await;
    assert_eq!(conflict(answer), long);
    assert_eq!(w.record("k").await?, full);

    let many = names(FIELDS_MAX)?.into_iter();
    let many = many.map(|name| (name, Bytes::new())).collect();
    let bad = Commit::new()
        .write(Write::Put(Put::new(key.clone(), many)))
        .write(set("one_more", Bytes::new())?);
    let problem = Problem::TooMany {
        count: FIELDS_MAX + 1,
        max: FIELDS_MAX,
    };
    let answer = w.store.commit_one(bad).await;
    assert_eq!(conflict(answer), too_large(problem));
    assert_eq!(w.record("k").await?, full);
    assert_eq!(w.history_from(start).await?.entries, []);
    Ok(())
}

async fn a_merge_names_each_field_once(w: World) -> Result<()> {
    let field = name("f")?;
    let merge = || Ok::<_, Error>(Merge::new(Key::new("k")?));
    let set = Fields::from([(field.clone(), Bytes::from("1"))]);
    for bad in [
        merge()?.set(set.clone()).unset(field.clone()),
        merge()?.set(set.clone()).add(field.clone(), 1),
        merge()?.set(set).raise(field.clone(), 1),
        merge()?.unset(field.clone()).unset(field.clone()),
        merge()?.unset(field.clone()).add(field.clone(), 1),
        merge()?.unset(field.clone()).raise(field.clone(), 1),
        merge()?.add(field.clone(), 1).raise(field.clone(), 1),
    ] {
        let bad = Commit::of(Write::Merge(bad)).id(w.ids.commit());
        let problem = repeated("writes[0].fields", "f");
        assert_eq!(refusal(&w, bad).await?, problem);
    }
    assert_eq!(w.record("k").await?, None);
    Ok(())
}

async fn a_merge_names_a_limited_number_of_fields(w: World) -> Result<()> {
    let merge = |unset: usize, raise: usize| -> Result<Write> {
        let names = names(unset + raise)?;
        let mut merge = Merge::new(Key::new("k")?);
        merge.unset = names[..unset].to_vec();
        merge.raise = names[unset..].iter().map(|n| (n.clone(), 1)).collect();
        Ok(Write::Merge(merge))
    };
    let problem = too_many("writes[0].fields", FIELDS_MAX + 1, FIELDS_MAX);
    assert_eq!(refused(&w, merge(FIELDS_MAX + 1, 0)?).await?, problem);
    assert_eq!(refused(&w, merge(FIELDS_MAX, 1)?).await?, problem);
    assert_eq!(w.record("k").await?, None);
    w.store.write(merge(FIELDS_MAX - 1, 1)?).await?;
    let record = w.record("k").await?;
    assert_eq!(record.map(|record| record.fields.len()), Some(1));
    Ok(())
}

async fn a_time_to_live_is_from_a_millisecond_to_a_hundred_years(w: World) -> Result<()> {
    let key = Key::new("k")?;
    let put = |ttl| Write::Put(Put::new(key.clone(), Fields::new()).ttl(ttl));
    let touch = |ttl| Write::Touch(key.clone(), Some(ttl));
    w.put("k", [("f", "v")]).await?;
    let before = w.record("k").await?;
    for ttl in not_a_lifetime() {
        let problem = duration_out_of_range("writes[0].ttl", ttl, "1ms", CENTURY);
        assert_eq!(refused(&w, put(ttl)).await?, problem);
        assert_eq!(refused(&w, touch(ttl)).await?, problem);
    }
    assert_eq!(w.record("k").await?, before);
    for ttl in [MILLISECOND, DURATION_MAX] {
        let expires_at = Some(w.now().saturating_plus(ttl));
        w.store.write(put(ttl)).await?;
        let record = w.record("k").await?;
        assert_eq!(record.and_then(|record| record.expires_at), expires_at);
        w.store.write(Write::Touch(key.clone(), None)).await?;
        w.store.write(touch(ttl)).await?;
        let record = w.record("k").await?;
        assert_eq!(record.and_then(|record| record.expires_at), expires_at);
    }
    Ok(())
}
