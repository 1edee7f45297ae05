//! The owner of the installation, and joined edges.

use sallyport_model::EdgeId;
use sallyport_store::{JoinRefusal, JoiningEdge, NewEdgeToken, TokenUser};

use crate::fixtures::{NOW, account, store_with_account};

#[tokio::test]
async fn the_installation_belongs_to_the_first_account_only() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let (ann, bob) = (account(1).account.id, account(2).account.id);
    assert_eq!(store.first_account().await.unwrap(), Some(ann));
    store.delete_account(ann).await.unwrap();
    assert_eq!(store.first_account().await.unwrap(), Some(ann), "it does not become the next one's");
    store.delete_account(bob).await.unwrap();
    store.create_account(account(3)).await.unwrap();
    assert_eq!(store.first_account().await.unwrap(), Some(account(3).account.id));
}

#[tokio::test]
async fn a_token_lets_one_edge_join() {
    let (_dir, store) = store_with_account().await;
    let eu = Some("eu".parse().unwrap());
    let new = NewEdgeToken { hash: [1; 32], name: None, region: eu.clone(), created_at: NOW, expires_at: NOW + 60 };
    store.create_edge_token(&new).await.unwrap();
    let joining = |n: u8, now: i64| JoiningEdge { id: EdgeId::from_random([n; 16]), name: None, region: None, now };
    assert_eq!(store.join_edge([2; 32], &joining(1, NOW)).await.unwrap(), Err(JoinRefusal::Unknown));
    assert_eq!(store.join_edge([1; 32], &joining(1, NOW + 60)).await.unwrap(), Err(JoinRefusal::Ended));
    let joined = store.join_edge([1; 32], &joining(1, NOW)).await.unwrap().unwrap();
    assert_eq!((joined.name.as_str(), Some(&joined.region)), ("eu-1", eu.as_ref()));
    let again = store.join_edge([1; 32], &joining(2, NOW)).await.unwrap();
    assert_eq!(again, Err(JoinRefusal::Used { by: "eu-1".to_owned(), is_removed: false }));
    assert_eq!(store.edges().await.unwrap(), std::slice::from_ref(&joined));
    assert!(store.delete_edge(joined.id).await.unwrap());
    assert!(!store.delete_edge(joined.id).await.unwrap());
    assert_eq!(store.edge(joined.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_token_remembers_which_edge_used_it_and_not_only_what_that_was_called() {
    let (_dir, store) = store_with_account().await;
    let join = async |n: u8| {
        let eu = Some("eu".parse().unwrap());
        let new = NewEdgeToken {
            hash: [n; 32],
            name: None,
            region: eu,
            created_at: NOW + i64::from(n),
            expires_at: NOW + 60,
        };
        store.create_edge_token(&new).await.unwrap();
        let joining = JoiningEdge { id: EdgeId::from_random([n; 16]), name: None, region: None, now: NOW };
        store.join_edge([n; 32], &joining).await.unwrap().unwrap()
    };
    let first = join(1).await;
    assert!(store.delete_edge(first.id).await.unwrap());
    let second = join(2).await;
    assert_eq!((first.name.as_str(), second.name.as_str()), ("eu-1", "eu-1"), "the name comes back");
    let users: Vec<_> = store.edge_tokens().await.unwrap().into_iter().map(|token| token.used_by.unwrap()).collect();
    let user = |id: EdgeId, is_removed: bool| TokenUser { name: "eu-1".into(), id: Some(id), is_removed };
    assert_eq!(users, [user(second.id, false), user(first.id, true)]);
    let joining = JoiningEdge { id: EdgeId::from_random([3; 16]), name: None, region: None, now: NOW };
    let refusal = store.join_edge([1; 32], &joining).await.unwrap().unwrap_err().to_string();
    assert!(
        refusal.contains("eu-1, which was removed since: create another") && !refusal.contains("edge rm"),
        "{refusal}"
    );
    let refusal = store.join_edge([2; 32], &joining).await.unwrap().unwrap_err().to_string();
    assert!(refusal.contains("by the edge eu-1: create another") && refusal.contains("edge rm eu-1"), "{refusal}");
}

#[tokio::test]
async fn each_edge_has_a_server_number_and_that_of_a_removed_one_is_given_again() {
    let (_dir, store) = store_with_account().await;
    let join = async |n: u8| {
        let eu = Some("eu".parse().unwrap());
        let new = NewEdgeToken { hash: [n; 32], name: None, region: eu, created_at: NOW, expires_at: NOW + 60 };
        store.create_edge_token(&new).await.unwrap();
        let joining = JoiningEdge { id: EdgeId::from_random([n; 16]), name: None, region: None, now: NOW };
        store.join_edge([n; 32], &joining).await.unwrap().unwrap()
    };
    let (one, two) = (join(1).await, join(2).await);
    assert_eq!((one.server, two.server), (1, 2));
    assert!(store.delete_edge(one.id).await.unwrap());
    let three = join(3).await;
    assert_eq!((three.server, store.edge(two.id).await.unwrap().unwrap().server), (1, 2));
}
