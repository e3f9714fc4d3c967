//! Opening stores by URL.

use plimsoll::record::fields;
use plimsoll::store::{Durability, Put, Write};
use plimsoll::{Error, Key, Namespace, Plimsoll, Result, StoreExt};

#[tokio::test]
async fn a_file_is_opened_by_its_url_and_keeps_what_was_written() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}", folder.path().join("plimsoll.db").display());
    let (namespace, key) = (Namespace::new("orders")?, Key::new("k")?);
    let store = Plimsoll::open(&url)?.namespace(namespace.clone()).await?;
    assert_eq!(store.capabilities().durability, Durability::Disk);
    let put = Put::new(key.clone(), fields([("f", "v")])?);
    store.write(Write::Put(put)).await?;
    drop(store);
    let weaker = format!("{url}?durability=system");
    let store = Plimsoll::open(&weaker)?.namespace(namespace).await?;
    assert_eq!(store.capabilities().durability, Durability::System);
    assert!(store.record(&key).await?.is_some());
    Ok(())
}

#[tokio::test]
async fn namespaces_of_one_memory_are_apart_and_shared_by_name() -> Result<()> {
    let plimsoll = Plimsoll::open("memory:")?;
    let (one, other) = (Namespace::new("one")?, Namespace::new("other")?);
    let key = Key::new("k")?;
    let put = Put::new(key.clone(), fields([("f", "v")])?);
    let store = plimsoll.namespace(one.clone()).await?;
    store.write(Write::Put(put)).await?;
    let again = plimsoll.namespace(one).await?;
    assert!(again.record(&key).await?.is_some());
    let apart = plimsoll.namespace(other).await?;
    assert!(apart.record(&key).await?.is_none());
    Ok(())
}

#[test]
fn what_is_no_store_is_refused() {
    assert!(matches!(Plimsoll::open("mysql:x"), Err(Error::Invalid(_))));
}
