//! SSH keys of clients.

use sallyport_store::{MAX_SSH_KEYS_PER_ACCOUNT, SshKey, StoreError};

use crate::fixtures::{NOW, account, store_with_account};

fn key(n: u8) -> SshKey {
    SshKey {
        id: [n; 16],
        name: format!("key {n}"),
        public_key: format!("ssh-ed25519 AAAA{n} me"),
        fingerprint: format!("SHA256:{n}"),
        created_at: NOW,
    }
}

#[tokio::test]
async fn keys_belong_to_accounts() {
    let (_dir, store) = store_with_account().await;
    let mut with_key = account(2);
    with_key.ssh_key = Some(key(9));
    store.create_account(with_key).await.unwrap();
    let (ann, bob) = (account(1).account.id, account(2).account.id);
    store.create_ssh_key(ann, &key(1)).await.unwrap();
    store.create_ssh_key(ann, &key(2)).await.unwrap();
    assert_eq!(store.ssh_keys(ann, 0, 9).await.unwrap(), [(1, key(1)), (2, key(2))]);
    assert_eq!(store.ssh_keys(ann, 1, 9).await.unwrap(), [(2, key(2))]);
    assert_eq!(store.ssh_keys(bob, 0, 9).await.unwrap(), [(1, key(9))]);
    let mut logins = store.ssh_logins().await.unwrap();
    logins.sort_by_key(|login| login.keys.len());
    assert_eq!(logins.iter().map(|login| login.account).collect::<Vec<_>>(), [bob, ann]);
    assert_eq!(logins[1].keys, [key(1).public_key, key(2).public_key]);

    assert!(!store.delete_ssh_key(bob, key(1).id).await.unwrap(), "it is not his");
    assert!(store.delete_ssh_key(ann, key(1).id).await.unwrap());
    assert!(!store.delete_ssh_key(ann, key(1).id).await.unwrap());
    store.delete_account(bob).await.unwrap();
    assert_eq!(store.ssh_logins().await.unwrap().len(), 1, "keys go with their account");
    assert!(matches!(store.create_ssh_key(bob, &key(3)).await, Err(StoreError::Gone)));
}

#[tokio::test]
async fn a_key_is_there_once_and_there_are_not_too_many() {
    let (_dir, store) = store_with_account().await;
    let ann = account(1).account.id;
    store.create_ssh_key(ann, &key(0)).await.unwrap();
    let error = store.create_ssh_key(ann, &SshKey { id: [77; 16], ..key(0) }).await.unwrap_err();
    assert!(matches!(&error, StoreError::SshKeyTaken { name } if name == "key 0"), "{error}");
    for n in 1..MAX_SSH_KEYS_PER_ACCOUNT as u8 {
        store.create_ssh_key(ann, &key(n)).await.unwrap();
    }
    let error = store.create_ssh_key(ann, &key(200)).await.unwrap_err();
    assert!(matches!(error, StoreError::Limit { max: 32, .. }), "{error}");
}
