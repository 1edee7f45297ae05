//! Which control leads.

use sallyport_store::StoredLeader;

use crate::fixtures::store_with_account;

#[tokio::test]
async fn one_control_leads_and_another_takes_over_by_what_it_saw() {
    let (_dir, store) = store_with_account().await;
    let (one, two) = ([1; 16], [2; 16]);
    assert_eq!(store.leader("steering").await.unwrap(), None);
    assert_eq!(store.take_lead("steering", one, None).await.unwrap(), Some(1));
    assert_eq!(store.take_lead("steering", two, None).await.unwrap(), None, "the other one was faster");
    let seen = store.leader("steering").await.unwrap();
    assert_eq!(seen, Some(StoredLeader { holder: one, term: 1, beat: 1 }));
    assert!(store.keep_lead("steering", one, 1).await.unwrap());
    assert_eq!(store.take_lead("steering", two, seen).await.unwrap(), None, "it has counted a beat meanwhile");
    let seen = store.leader("steering").await.unwrap();
    assert_eq!(seen.map(|leader| leader.beat), Some(2));
    assert_eq!(store.take_lead("steering", two, seen).await.unwrap(), Some(2));
    assert!(!store.keep_lead("steering", one, 1).await.unwrap(), "a former leader is told");
    assert!(store.keep_lead("steering", two, 2).await.unwrap());
    assert_eq!(store.legacy("steering").await.unwrap(), "");
    let seen = store.leader("steering").await.unwrap();
    assert!(store.set_legacy("steering", two, 2, "[1]").await.unwrap());
    assert!(!store.set_legacy("steering", one, 1, "[]").await.unwrap(), "a former leader leaves nothing");
    assert_eq!(store.take_lead("steering", one, seen).await.unwrap(), None, "it has not seen the legacy");
    assert_eq!(store.legacy("steering").await.unwrap(), "[1]");
    assert!(store.raise_term("steering", two, 2, 9).await.unwrap());
    assert!(!store.raise_term("steering", two, 2, 10).await.unwrap(), "the term is another one");
    assert!(store.keep_lead("steering", two, 9).await.unwrap());
    let seen = store.leader("steering").await.unwrap();
    assert_eq!(store.take_lead("steering", one, seen).await.unwrap(), Some(10));
    assert_eq!(store.legacy("steering").await.unwrap(), "[1]", "the next leader finds it");
    assert_eq!(store.leader("other").await.unwrap(), None, "each task has a leader of its own");
}
