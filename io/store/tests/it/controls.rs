//! Control instances over one store, and their shared keys.

use sallyport_store::StoreError;

use crate::fixtures::store_with_account;

#[tokio::test]
async fn a_control_counts_on_until_it_is_forgotten() {
    let (_dir, store) = store_with_account().await;
    store.beat([1; 16], "10.0.0.1:8444", "1.0").await.unwrap();
    let seen = store.beat([2; 16], "", "1.1").await.unwrap();
    let controls: Vec<_> =
        seen.iter().map(|one| (one.id, one.beat, one.addresses.as_str(), one.program.as_str())).collect();
    assert_eq!(controls, [([1; 16], 1, "10.0.0.1:8444", "1.0"), ([2; 16], 1, "", "1.1")]);
    let seen = store.beat([1; 16], "10.0.0.9:8444", "1.1").await.unwrap();
    assert_eq!((seen[0].beat, seen[0].addresses.as_str()), (2, "10.0.0.9:8444"));
    // A control with a grown counter is not forgotten.
    store.forget_control([1; 16], 1).await.unwrap();
    store.forget_control([2; 16], 1).await.unwrap();
    let seen = store.beat([1; 16], "", "1.1").await.unwrap();
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn the_first_keys_stay() {
    let (_dir, store) = store_with_account().await;
    assert_eq!(store.installation_keys().await.unwrap(), []);
    let pair = |name: &str, sealed: &str| (name.to_owned(), sealed.to_owned());
    let kept = store.keep_installation_keys(&[pair("site", "s1"), pair("token", "t1")]).await.unwrap();
    assert_eq!(kept, [pair("site", "s1"), pair("token", "t1")]);
    let kept = store.keep_installation_keys(&[pair("nodes", "n2"), pair("token", "t2")]).await.unwrap();
    assert_eq!(kept, [pair("nodes", "n2"), pair("site", "s1"), pair("token", "t1")]);
    let change = |name: &str, former: &str, sealed: &str| (name.to_owned(), former.to_owned(), sealed.to_owned());
    let wrong = [change("site", "s1", "s3"), change("token", "t2", "t3")];
    assert!(matches!(store.reseal_installation_keys(&wrong).await, Err(StoreError::Gone)));
    assert_eq!(store.installation_keys().await.unwrap(), kept, "nothing has changed");
    let right = [change("site", "s1", "s3"), change("token", "t1", "t3")];
    store.reseal_installation_keys(&right).await.unwrap();
    let now = store.installation_keys().await.unwrap();
    assert_eq!(now, [pair("nodes", "n2"), pair("site", "s3"), pair("token", "t3")]);
}
